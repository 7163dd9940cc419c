package scanner

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/telemetry"
)

const (
	// registerInterval is how often a member sees to its entry in Consul.
	registerInterval = 10 * time.Second
	// registerTimeout bounds one call to Consul.
	registerTimeout = 5 * time.Second
	// renewInterval is how often a note is written anew, which shows that its writer
	// lives; one that was not for staleAfter is of a dead one.
	renewInterval = 5 * time.Minute
	staleAfter    = 3 * renewInterval
	// notesInterval is how often a member looks for notes of the dead, from its start on.
	notesInterval = 10 * time.Minute
)

// Register announces a member and what it thinks of its configuration.
type Register interface {
	Catalog
	Notes
}

// Catalog is where others find the members that live.
type Catalog interface {
	Register(ctx context.Context, instance, adminAddr string) error
	Deregister(ctx context.Context, adminAddr string) error
}

// Notes are what members think of their configuration.
type Notes interface {
	WriteStatus(ctx context.Context, instance string, note []byte) error
	DeleteStatus(ctx context.Context, instance string) error
	SweepStatus(ctx context.Context, dead func(instance string, note []byte) bool) (swept []string, err error)
}

// note is what a member thinks of its configuration, as it is left in Consul.
type note struct {
	Time    time.Time         `json:"time"` // when it was written
	Applied uint64            `json:"config_applied_index"`
	Errors  map[string]string `json:"errors"`
	// Documents in force: their digests by topic, as config.Digest has them. Left out where
	// there are so many that Consul might not take the note.
	Documents map[string]string `json:"documents,omitempty"`
}

// notedDocuments is how many documents a note names: with the longest names they take
// two thirds of what a value in Consul may.
const notedDocuments = 4000

// registration keeps a member in Consul: in the catalog, and with a note of what it
// thinks of its configuration.
type registration struct {
	register Register
	instance string
	fleet    func(ctx context.Context) ([]balance.Member, error) // those heard of lately
	metrics  *telemetry.Metrics
	log      *slog.Logger

	refusal atomic.Pointer[string] // why Consul refuses to register this member; nil: it does not
	down    bool                   // Consul did not answer last; report's own
	back    chan struct{}          // Consul answers again
	notes   chan note              // the newest that Consul has not got
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
func (r *registration) report(index uint64, errs, documents map[string]string) {
	if len(documents) > notedDocuments {
		documents = nil
	}
	down := errs[""] != ""
	r.metrics.SetConsulUp(!down)
	if r.down && !down {
		kick(r.back)
	}
	r.down = down
	select {
	case <-r.notes:
	default:
	}
	r.notes <- note{Applied: index, Errors: maps.Clone(errs), Documents: documents}
}

// write writes notes until ctx ends, one after the other, so that the newest is what
// stays, and that one again and again.
func (r *registration) write(ctx context.Context) {
	renew := time.NewTicker(renewInterval)
	defer renew.Stop()
	var last *note
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-r.notes:
			last = &n
		case <-renew.C:
		}
		if last == nil {
			continue
		}
		last.Time = time.Now().UTC()
		text, _ := json.Marshal(last) // a time, a number and strings: no error
		limited, cancel := context.WithTimeout(ctx, registerTimeout)
		err := r.register.WriteStatus(limited, r.instance, text)
		cancel()
		if err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "status not written to consul", "error", err)
		}
	}
}

// sweep removes the notes of dead members until ctx ends: now, and every notesInterval.
// Every member does; what two find at once one removes.
func (r *registration) sweep(ctx context.Context) {
	ticker := time.NewTicker(notesInterval)
	defer ticker.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, registerTimeout)
		swept, err := r.sweepNow(limited, time.Now())
		cancel()
		if len(swept) > 0 {
			r.log.InfoContext(ctx, "status of dead scanners removed from consul", "instances", swept)
		}
		if err != nil {
			r.log.DebugContext(ctx, "status of dead scanners not removed from consul", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sweepNow removes the notes of those who have not renewed them for staleAfter and are
// not of this fleet: one that is may be of a version that doesn't renew. Another fleet
// may write to the same folder.
func (r *registration) sweepNow(ctx context.Context, now time.Time) (swept []string, err error) {
	members, err := r.fleet(ctx)
	if err != nil {
		return nil, err
	}
	return r.register.SweepStatus(ctx, func(instance string, text []byte) bool {
		var n note
		if json.Unmarshal(text, &n) != nil || n.Time.IsZero() || now.Sub(n.Time) < staleAfter {
			return false
		}
		return !slices.ContainsFunc(members, func(m balance.Member) bool { return m.Instance == instance })
	})
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
