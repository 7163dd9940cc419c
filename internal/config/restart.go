package config

// NeedRestart lists the settings that only a restart applies: those that differ between
// running, which a process uses, and read, which it has read since. It leaves out topics.
// It shows no values of secrets. A file with a secret is read for each new connection, so
// new content in the same file needs no restart.
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
			continue // the secret's own value covers it
		}
		if sameFile(running, read, f.key) {
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

// sameFile reports whether both take a secret from the same file.
func sameFile(running, read *Config, key string) bool {
	was, is := running.fromFiles()[key], read.fromFiles()[key]
	return was != nil && *was != "" && *was == *is
}
