package config

import (
	"os"
	"runtime"
	"slices"
)

// readableByAll is the bit of a file's mode that lets every user read it.
const readableByAll = 0o004

// Exposed returns the SecretFiles that every user of the machine can read, each once. It
// leaves out files that don't exist any more.
func (c *Config) Exposed() []string {
	if runtime.GOOS == "windows" { // its modes don't concern other users
		return nil
	}
	var all []string
	for _, path := range c.SecretFiles {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&readableByAll != 0 && !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	return all
}

// secretFiles returns the files with secrets, private keys included.
func secretFiles(c Config, s settings) []string {
	var all []string
	for _, f := range configFields() {
		if g, ok := s.values[f.key]; ok && f.fileOf != "" {
			all = append(all, g.value.(string))
		}
	}
	for _, t := range []TLS{c.Redis.TLS, c.RabbitMQ.TLS, c.Consul.TLS} {
		if t.Enabled && t.KeyFile != "" {
			all = append(all, t.KeyFile)
		}
	}
	return all
}
