package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/duefleet/duefleet/internal/config"
)

// hangup handles SIGHUP: it reads the topics of the file again, and logs which changed
// settings need a restart.
type hangup struct {
	settings *settings
	running  *config.Config // the configuration at the start
	// reread makes the source read the topics of the file again. It is nil if Consul
	// holds the topics: then nothing has to be read.
	reread chan<- struct{}
	log    *slog.Logger
}

// serve handles signals until ctx ends.
func (h hangup) serve(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			h.handle(ctx)
		}
	}
}

func (h hangup) handle(ctx context.Context) {
	if h.reread == nil {
		h.log.InfoContext(ctx, "sighup: topics come from consul, whose documents are always watched")
	} else {
		h.log.InfoContext(ctx, "sighup: topics of the file are read again", "file", h.settings.path)
		select {
		case h.reread <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
	h.compare(ctx)
}

// compare logs which settings a restart would change, or that a restart would fail.
func (h hangup) compare(ctx context.Context) {
	read, err := h.settings.load()
	if err != nil {
		h.log.ErrorContext(ctx, "sighup: the configuration can't be used, a restart would fail", "error", err)
		return
	}
	for _, c := range config.NeedRestart(h.running, read) {
		if c.Key == "max_payload" {
			continue // only the producer uses it
		}
		h.log.WarnContext(ctx, "sighup: setting differs from the one in force and needs a restart", "key", c.Key, "running",
			c.Old, "configured", c.New)
	}
}
