package config

// NeedRestart lists the differences between a process's settings and those read since,
// without topics. Only a restart applies them. For a secret it shows no values. A
// secret's file is read at every connection, so new content in the same file needs no
// restart.
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

// reread reports whether both take a secret from the same file.
func reread(running, read *Config, key string) bool {
	was, is := running.fromFiles()[key], read.fromFiles()[key]
	return was != nil && *was != "" && *was == *is
}
