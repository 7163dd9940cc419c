package scanner

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/telemetry"
)

const (
	// registerInterval is how often a member sees to its entry in Consul.
	registerInterval = 10 * time.Second
	// registerTimeout bounds one call to Consul.
	registerTimeout = 5 * time.Second
)

// Register announces a member and what it thinks of its configuration.
type Register interface {
	Register(ctx context.Context, instance, adminAddr string) error
	Deregister(ctx context.Context, adminAddr string) error
	WriteStatus(ctx context.Context, instance string, note []byte) error
	DeleteStatus(ctx context.Context, instance string) error
}

// registration keeps a member in Consul: in the catalog, and with a note of what it
// thinks of its configuration.
type registration struct {
	register Register
	instance string
	metrics  *telemetry.Metrics
	log      *slog.Logger

	refusal atomic.Pointer[string] // why Consul refuses to register this member; nil: it does not
	down    bool                   // Consul did not answer last; report's own
	back    chan struct{}          // Consul answers again
	notes   chan []byte            // the newest that Consul has not got
}

// announce registers this member, trying until it is heard; and again and again until ctx
// ends, for an agent that came back may have lost what it knew, and one whose check has
// failed for long takes the member out.
func (r *registration) announce(ctx context.Context, adminAddr string) {
	var pause retry.Backoff
	for ctx.Err() == nil {
		err := r.register.Register(ctx, r.instance, adminAddr)
		switch {
		case err == nil:
			if r.refusal.Swap(nil) != nil {
				r.log.InfoContext(ctx, "consul registers this scanner again")
			}
			pause.Reset()
		case consul.Forbidden(err): // it works all the same, but nobody finds it in the catalog
			r.metrics.Error("register")
			why := err.Error()
			if r.refusal.Swap(&why) == nil {
				r.log.WarnContext(ctx, "consul does not register this scanner", "error", why)
			}
		default: // Consul is away, which who watches the documents logs
			r.log.DebugContext(ctx, "not registered in consul yet", "error", err)
			pause.Wait(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(registerInterval):
		case <-r.back:
		}
	}
}

// report takes what this member thinks of its configuration, in the place of what it
// took before and has not written yet. The reloader calls it, never twice at a time.
func (r *registration) report(index uint64, errs map[string]string) {
	down := errs[""] != ""
	r.metrics.SetConsulUp(!down)
	if r.down && !down {
		kick(r.back)
	}
	r.down = down
	note, err := json.Marshal(struct {
		Time    time.Time         `json:"time"`
		Applied uint64            `json:"config_applied_index"`
		Errors  map[string]string `json:"errors"`
	}{time.Now().UTC(), index, errs})
	if err != nil {
		return
	}
	select {
	case <-r.notes:
	default:
	}
	r.notes <- note
}

// write writes notes until ctx ends, one after the other, so that the newest is what
// stays.
func (r *registration) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case note := <-r.notes:
			limited, cancel := context.WithTimeout(ctx, registerTimeout)
			err := r.register.WriteStatus(limited, r.instance, note)
			cancel()
			if err != nil && ctx.Err() == nil {
				r.log.WarnContext(ctx, "status not written to consul", "error", err)
			}
		}
	}
}

// leave takes this member out of Consul, within a time.
func (r *registration) leave(ctx context.Context, adminAddr string, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if r.refusal.Load() == nil { // else it is not registered
		if err := r.register.Deregister(ctx, adminAddr); err != nil {
			r.log.WarnContext(ctx, "not deregistered from consul", "error", err)
		}
	}
	if err := r.register.DeleteStatus(ctx, r.instance); err != nil {
		r.log.WarnContext(ctx, "status not removed from consul", "error", err)
	}
}
