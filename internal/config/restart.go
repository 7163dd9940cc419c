package config

// NeedRestart lists what differs between the settings that a process runs with and
// those read since, other than topics: nothing but a restart applies it. Of a secret it
// says that it differs, and no value.
func NeedRestart(running, read *Config) []Change {
	const unshown = "(secret)"
	all := configFields()
	secret := map[string]bool{}
	for _, f := range all {
		if f.fileOf != "" {
			secret[f.fileOf] = true
		}
	}
	var changes []Change
	for _, f := range all {
		if f.fileOf != "" {
			continue // what the file says is the secret's own value
		}
		was, _ := f.of(running)
		is, _ := f.of(read)
		switch c := (Change{f.key, show(was), show(is)}); {
		case c.Old == c.New:
		case secret[f.key]:
			changes = append(changes, Change{f.key, unshown, unshown})
		default:
			changes = append(changes, c)
		}
	}
	return changes
}
