package config

import (
	"context"
	"log/slog"
	"os"
)

// Hangup handles SIGHUP: it reads the topics of the file again, and logs which changed
// settings need a restart.
type Hangup struct {
	// Path of the configuration file, and Load, which reads it.
	Path string
	Load func() (*Config, error)
	// Running is the configuration at the start.
	Running *Config
	// Reread makes the source read the topics of the file again. It is nil if Consul
	// holds the topics: then nothing has to be read.
	Reread chan<- struct{}
	Log    *slog.Logger
}

// Serve handles signals until ctx ends.
func (h Hangup) Serve(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			h.handle(ctx)
		}
	}
}

func (h Hangup) handle(ctx context.Context) {
	if h.Reread == nil {
		h.Log.InfoContext(ctx, "sighup: topics come from consul, whose documents are always watched")
	} else {
		h.Log.InfoContext(ctx, "sighup: topics of the file are read again", "file", h.Path)
		select {
		case h.Reread <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
	h.compare(ctx)
}

// compare logs which settings a restart would change, or that a restart would fail.
func (h Hangup) compare(ctx context.Context) {
	read, err := h.Load()
	if err != nil {
		h.Log.ErrorContext(ctx, "sighup: the configuration can't be used, a restart would fail", "error", err)
		return
	}
	for _, c := range needRestart(h.Running, read) {
		if c.Key == "max_payload" {
			continue // only the producer uses it
		}
		h.Log.WarnContext(ctx, "sighup: setting differs from the one in force and needs a restart", "key", c.Key, "running",
			c.Old, "configured", c.New)
	}
}

// needRestart lists the settings that only a restart applies: those that differ between
// running, which a process uses, and read, which it has read since. It leaves out topics.
// It shows no values of secrets. A file with a secret is read for each new connection, so
// new content in the same file needs no restart.
func needRestart(running, read *Config) []Change {
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
