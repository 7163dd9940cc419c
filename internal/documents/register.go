package documents

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/retry"
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

// Register announces a member and what it reports about its configuration.
type Register interface {
	Catalog
	Notes
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
	cfg Config

	refusal atomic.Pointer[string] // why Consul refuses to register this member; nil: it does not.
	back    wake.Signal            // Consul answers again.
	notes   chan note              // the newest note that isn't written.

	// Only report uses these.
	down     bool              // Consul didn't answer at the last report.
	reported map[string]string // the documents of the last report.
}

func newRegistration(cfg Config) *registration {
	return &registration{cfg: cfg, back: wake.NewSignal(), notes: make(chan note, 1)}
}

// announce registers this member, and tries until it succeeds. It then repeats that until
// ctx ends. An agent that restarted may have forgotten the member, and an agent removes a
// member whose check has failed for long.
func (r *registration) announce(ctx context.Context, adminAddr string) {
	var pause retry.Backoff
	for ctx.Err() == nil {
		err := r.cfg.Register.Register(ctx, r.cfg.Instance, adminAddr)
		switch {
		case err == nil:
			if r.refusal.Swap(nil) != nil {
				r.cfg.Log.InfoContext(ctx, "consul registers this scanner again")
			}
			pause.Reset()
		case consul.Forbidden(err): // the scanner works without, but isn't in the catalog
			r.cfg.Error("register")
			why := err.Error()
			if r.refusal.Swap(&why) == nil {
				r.cfg.Log.WarnContext(ctx, "consul does not register this scanner", "error", why)
			}
		default: // Consul is away; the watch of the documents logs that
			r.cfg.Log.DebugContext(ctx, "not registered in consul yet", "error", err)
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
// written so far. If the note isn't fresh, report does nothing unless it has other documents
// than the last one. Only one call runs at a time.
func (r *registration) report(n note, fresh bool) {
	if !fresh && maps.Equal(n.Documents, r.reported) {
		return
	}
	r.reported = n.Documents
	if len(n.Documents) > notedDocuments {
		n.Documents = nil
	}
	down := n.Errors[""] != ""
	r.cfg.Metrics.ConsulUp.Set(!down)
	if r.down && !down {
		r.back.Send()
	}
	r.down = down
	select {
	case <-r.notes:
	default:
	}
	r.notes <- n
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
		err := r.cfg.Register.WriteStatus(limited, r.cfg.Instance, text)
		cancel()
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.WarnContext(ctx, "status not written to consul", "error", err)
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
			r.cfg.Log.InfoContext(ctx, "status of dead scanners removed from consul", "instances", swept)
		}
		if err != nil {
			r.cfg.Log.DebugContext(ctx, "status of dead scanners not removed from consul", "error", err)
		}
		retry.Sleep(ctx, notesInterval)
	}
}

// sweepNow removes notes that weren't renewed for staleAfter and whose writers aren't
// members of this fleet. A member's note stays, because its version may not renew notes.
// Another fleet may write to the same folder; its notes stay while they are renewed.
func (r *registration) sweepNow(ctx context.Context, now time.Time) (swept []string, err error) {
	members, err := r.cfg.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	return r.cfg.Register.SweepStatus(ctx, func(instance string, text []byte) bool {
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
		if err := r.cfg.Register.Deregister(ctx, adminAddr); err != nil {
			r.cfg.Log.WarnContext(ctx, "not deregistered from consul", "error", err)
		}
	}
	if err := r.cfg.Register.DeleteStatus(ctx, r.cfg.Instance); err != nil {
		r.cfg.Log.WarnContext(ctx, "status not removed from consul", "error", err)
	}
}
