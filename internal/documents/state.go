package documents

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/problem"
)

// State is a report of a scanner about its documents.
type State struct {
	// Applied is the index of the snapshot in force.
	Applied uint64
	// Errors of documents by topic; "" is the source as a whole.
	Errors map[string]string
	// Heard reports that the source has answered, or failed to, at least once. Away reports
	// that it can't be read now.
	Heard, Away bool
	// Refused says which of this scanner's documents wait because the fleet takes their topics
	// from another source; "" if none do.
	Refused string
}

// State returns what to report.
func (r *Reloader) State() State {
	refused := r.sources.why()
	r.mu.Lock()
	defer r.mu.Unlock()
	return State{Applied: r.index, Errors: maps.Clone(r.faults.errors), Heard: r.heard, Away: r.faults.away,
		Refused: refused}
}

// Hash returns a hash of the documents in force; 0 before any were read.
func (r *Reloader) Hash() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.read {
		return 0
	}
	return config.HashAll(r.digests())
}

// Problems returns what is wrong with the documents, their source and the registration in
// Consul. Unmade and Orphans have the rest.
func (r *Reloader) Problems() (found []problem.Problem) {
	s := r.State()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.denied) > 0 {
		why := strings.Join(slices.Sorted(maps.Values(r.denied)), "; ")
		found = append(found, problem.New(problem.RedisRefuses, "", why))
	}
	for _, topic := range slices.Sorted(maps.Keys(s.Errors)) {
		switch {
		case topic != "":
			found = append(found, problem.New(problem.DocumentRefused, topic, s.Errors[topic]))
		case !s.Away:
			found = append(found, problem.New(problem.ConfigurationRefused, "", s.Errors[topic]))
		case r.registration != nil:
			found = append(found, problem.Away(problem.ConsulAway, s.Errors[topic]))
		default:
			found = append(found, problem.Away(problem.SourceAway, s.Errors[topic]))
		}
	}
	if r.registration != nil {
		if why := r.registration.refusal.Load(); why != nil {
			found = append(found, problem.New(problem.ConsulRefuses, "", "consul does not register this scanner: "+*why))
		}
	}
	if s.Refused != "" {
		found = append(found, problem.New(problem.OtherSource, "", s.Refused))
	}
	if !r.read {
		found = append(found, problem.New(problem.NotConfigured, "", "the documents of topics are not read yet"))
	}
	return found
}

// Unmade returns a problem for each topic with a document in force that has no placement in
// Redis. Producers would get the error that it is unknown. A topic whose source isn't
// known is among them. Topics whose document has vanished or become bad aren't made, and
// don't count. A topic that can't be forwarded doesn't count either: it still takes and
// keeps tasks.
func (r *Reloader) Unmade() (found []problem.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	missing := slices.Clone(r.pending)
	for name, in := range r.topics {
		if p, _ := r.cfg.Placement(name); p.Epoch == 0 && !in.orphan && r.faults.errors[name] == "" {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	for _, name := range slices.Compact(missing) {
		found = append(found, problem.New(problem.TopicNotMade, name, "not in Redis yet"))
	}
	return found
}

// Orphans returns a problem for each served topic that has no document in the source.
func (r *Reloader) Orphans() (found []problem.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, in := range r.topics {
		if in.orphan {
			found = append(found, problem.New(problem.TopicOrphan, name,
				"orphan: this scanner's source has no document of it"))
		}
	}
	return found
}

// faults has the errors of documents, and of their source. Reloader.mu guards it.
type faults struct {
	cfg     Config
	errors  map[string]string // by topic; "" is the source as a whole.
	kept    map[string]bool   // topics whose error is in the document that Redis keeps.
	away    bool              // the source can't be read.
	advised string            // the advice that was last logged about that.
}

// record records what is wrong with a topic's document or with the source, and logs it once.
func (f *faults) record(ctx context.Context, name string, err error) {
	log := f.cfg.Log
	if name != "" {
		log = log.With("topic", name)
	}
	if err == nil {
		if f.errors[name] != "" {
			delete(f.errors, name)
			log.InfoContext(ctx, "configuration is good again")
		}
		return
	}
	if f.errors[name] == err.Error() {
		return
	}
	f.errors[name] = err.Error()
	f.cfg.Metrics.Refused.Inc()
	log.ErrorContext(ctx, "configuration not applied, the last good one stays in force", "error", err)
}

// recordSource records the error of a snapshot; nil: it has none. The source either can't be
// read, or has mistakes that belong to no topic.
func (f *faults) recordSource(ctx context.Context, err error) {
	var mistakes config.Errors
	if err != nil && !errors.As(err, &mistakes) {
		f.recordAway(ctx, err)
		return
	}
	if f.away {
		f.away, f.advised = false, ""
		delete(f.errors, "")
		f.cfg.Log.InfoContext(ctx, "the source of topics can be read again")
	}
	f.record(ctx, "", err)
}

// recordAway records that the source can't be read, and logs when that begins. It is no error in
// the configuration: the settings in force stay, and changes wait.
func (f *faults) recordAway(ctx context.Context, err error) {
	advice := connect.Advice("consul", err.Error())
	first := !f.away
	f.away, f.errors[""] = true, err.Error()
	if first {
		f.cfg.Metrics.Refused.Inc()
	}
	if first || advice != "" && advice != f.advised {
		f.advised = advice
		f.cfg.Log.WarnContext(ctx, "the source of topics can't be read, the last good settings stay in force", "error", err)
	}
}

// forgive removes the errors of documents that are gone.
func (f *faults) forgive(ctx context.Context, there func(name string) bool) {
	for name := range f.errors {
		if name != "" && !there(name) {
			delete(f.errors, name)
			delete(f.kept, name)
			f.cfg.Log.InfoContext(ctx, "configuration that was not applied is gone", "topic", name)
		}
	}
}

// count sets the metric of broken documents. It leaves out the error of a source that can't be
// read.
func (f *faults) count() {
	n := len(f.errors)
	if f.away {
		n--
	}
	f.cfg.Metrics.Broken.Set(float64(n))
}
