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
	"github.com/duefleet/duefleet/internal/wake"
)

const (
	// registerInterval is how often a member renews its entry in Consul.
	registerInterval = 10 * time.Second
	// registerTimeout bounds one call to Consul.
	registerTimeout = 5 * time.Second
	// renewInterval is how often a member writes its note again, to show that it lives. A
	// note that wasn't renewed for staleAfter belongs to a dead member.
	renewInterval = 5 * time.Minute
	staleAfter    = 3 * renewInterval
	// notesInterval is how often a member looks for notes of dead members, beginning when
	// it starts.
	notesInterval = 10 * time.Minute
)

// Register announces a member and what it reports about its configuration. It also keeps
// the identity of the fleet's data.
type Register interface {
	Catalog
	Notes
	Identities
}

// Catalog is where others find the live members.
type Catalog interface {
	Register(ctx context.Context, instance, adminAddr string) error
	Deregister(ctx context.Context, adminAddr string) error
}

// Notes stores the reports of members about their configuration.
type Notes interface {
	WriteStatus(ctx context.Context, instance string, note []byte) error
	DeleteStatus(ctx context.Context, instance string) error
	SweepStatus(ctx context.Context, dead func(instance string, note []byte) bool) (swept []string, err error)
}

// note is a member's report about its configuration, stored in Consul.
type note struct {
	Time    time.Time         `json:"time"` // when it was written
	Applied uint64            `json:"config_applied_index"`
	Errors  map[string]string `json:"errors"`
	// Documents has the digests of the documents in force by topic, made by
	// config.Digest. It is left out if there are too many for a value in Consul.
	Documents map[string]string `json:"documents,omitempty"`
}

// notedDocuments bounds the documents that a note names. With the longest names they take
// two thirds of the largest value that Consul accepts.
const notedDocuments = 4000

// registration keeps a member in Consul: in the catalog, and with a note about its
// configuration.
type registration struct {
	register Register
	instance string
	fleet    func(ctx context.Context) ([]balance.Member, error) // the members heard from recently
	metrics  *telemetry.Metrics
	log      *slog.Logger

	refusal atomic.Pointer[string] // why Consul refuses to register this member; nil: it does not.
	down    bool                   // Consul didn't answer at the last report; only report uses it.
	back    wake.Signal            // Consul answers again.
	notes   chan note              // the newest note that isn't written.
}

// announce registers this member, and tries until it succeeds. It then repeats that until
// ctx ends. An agent that restarted may have forgotten the member, and an agent removes a
// member whose check has failed for long.
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
		case consul.Forbidden(err): // the scanner works without, but isn't in the catalog
			r.metrics.Error("register")
			why := err.Error()
			if r.refusal.Swap(&why) == nil {
				r.log.WarnContext(ctx, "consul does not register this scanner", "error", why)
			}
		default: // Consul is away; the watch of the documents logs that
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

// report takes a note about this member's configuration. It replaces a note that isn't
// written so far. The reloader calls it, never twice at the same time.
func (r *registration) report(index uint64, errs, documents map[string]string) {
	if len(documents) > notedDocuments {
		documents = nil
	}
	down := errs[""] != ""
	r.metrics.SetConsulUp(!down)
	if r.down && !down {
		r.back.Send()
	}
	r.down = down
	select {
	case <-r.notes:
	default:
	}
	r.notes <- note{Applied: index, Errors: maps.Clone(errs), Documents: documents}
}

// write writes notes until ctx ends, one after the other, so that the newest one stays.
// It writes the newest one again every renewInterval.
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
// Every member does so; if two find the same note, only one of them removes it.
func (r *registration) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, registerTimeout)
		swept, err := r.sweepNow(limited, time.Now())
		cancel()
		if len(swept) > 0 {
			r.log.InfoContext(ctx, "status of dead scanners removed from consul", "instances", swept)
		}
		if err != nil {
			r.log.DebugContext(ctx, "status of dead scanners not removed from consul", "error", err)
		}
		retry.Sleep(ctx, notesInterval)
	}
}

// sweepNow removes notes that weren't renewed for staleAfter and whose writers aren't
// members of this fleet. A member's note stays, because its version may not renew notes.
// Another fleet may write to the same folder; its notes stay while they are renewed.
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

// leave removes this member from Consul, within some time.
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
