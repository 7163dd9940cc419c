package config

// NeedRestart lists what differs between the settings that a process runs with and
// those read since, other than topics: nothing but a restart applies it. Of a secret it
// says that it differs, and no value. What a secret's file says is read at every
// connection, and needs no restart while the file is the same.
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
		if reread(running, read, f.key) {
			continue
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

// reread reports whether both have a secret from the same file.
func reread(running, read *Config, key string) bool {
	was, is := running.fromFiles()[key], read.fromFiles()[key]
	return was != nil && *was != "" && *was == *is
}
