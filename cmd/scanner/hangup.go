package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/duefleet/duefleet/internal/config"
)

// hangup does what SIGHUP asks for, wherever the topics come from: topics of a file are
// read anew, and the log says what the signal can't apply.
type hangup struct {
	settings *settings
	running  *config.Config // what the scanner was started with
	// reread has the topics of the file read anew; nil: Consul holds the topics, and
	// nothing has to be read.
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
		h.log.InfoContext(ctx, "sighup: topics are consul's, whose documents are watched anyway")
	} else {
		h.log.InfoContext(ctx, "sighup: topics of the file are read anew", "file", h.settings.path)
		select {
		case h.reread <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
	h.compare(ctx)
}

// compare logs what a restart would change, or that a scanner would not start.
func (h hangup) compare(ctx context.Context) {
	read, err := h.settings.load()
	if err != nil {
		h.log.ErrorContext(ctx, "sighup: the configuration can't be used, a restart would fail", "error", err)
		return
	}
	for _, c := range config.NeedRestart(h.running, read) {
		if c.Key == "max_payload" {
			continue // the producer's
		}
		h.log.WarnContext(ctx, "sighup: setting differs from the one in force and needs a restart", "key", c.Key, "running", c.Old, "configured", c.New)
	}
}
