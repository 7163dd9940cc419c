package documents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/registry"
)

// While all topics have this scanner's source, it reads their records every sourceInterval. If
// that were more than sourceRate topics a second, it reads them less often.
const (
	sourceInterval = 5 * time.Second
	sourceRate     = 10
)

// askAgain returns when to read the records of n settled topics again, in a fleet in which some
// scanners live. More than three scanners read no more often than three do.
func askAgain(n, live int) time.Duration {
	const few = 3
	return max(sourceInterval, time.Duration(n)*time.Second/sourceRate) * time.Duration(max(live, few)) / few
}

// sources knows the recorded source of each topic. A topic with another recorded source
// is served by the document that Redis keeps, and the scanner's own document waits. See
// docs/adr/0019. It is safe for concurrent use.
type sources struct {
	cfg    Config // With SourceName "" nothing is recorded or compared.
	logged string // the last text about foreign topics; only logForeign uses it.

	mu       sync.Mutex
	recorded map[string]string // by topic; "" means none
}

// foreign reports whether a topic has another recorded source, or none and this scanner
// may not take it.
func (s *sources) foreign(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	recorded, known := s.recorded[topic]
	return known && recorded != s.cfg.SourceName
}

// settled reports whether all the documents' topics have this scanner's source.
func (s *sources) settled(docs map[string]config.Document) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range docs {
		if recorded, known := s.recorded[name]; s.cfg.SourceName != "" && (!known || recorded != s.cfg.SourceName) {
			return false
		}
	}
	return true
}

// unknown returns the topics whose record wasn't read so far.
func (s *sources) unknown(docs map[string]config.Document) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range docs {
		if _, known := s.recorded[name]; s.cfg.SourceName != "" && !known {
			names = append(names, name)
		}
	}
	return names
}

// retain forgets the topics that have no document.
func (s *sources) retain(docs map[string]config.Document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.recorded, func(name, _ string) bool { _, there := docs[name]; return !there })
}

// ask reads the records of topics, and takes those that the scanner may take. If Redis
// refuses that to this user, the topic counts as the scanner's own, and the error says
// why. If Redis is away, ask returns no error: the records stay unknown.
func (s *sources) ask(ctx context.Context, names []string) error {
	if s.cfg.SourceName == "" || len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, balance.Silence)
	defer cancel()
	records := s.cfg.Store.Registry().Sources(ctx, names)
	if take := s.takeable(ctx, records); len(take) > 0 {
		maps.Copy(records, s.cfg.Store.Registry().TakeSources(ctx, s.cfg.SourceName, take))
	}
	return s.applyRecords(records)
}

// applyRecords keeps what the records say, and returns the refusals.
func (s *sources) applyRecords(records map[string]registry.SourceRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for name, r := range records {
		switch {
		case r.Err == nil:
			s.recorded[name] = r.Source
		case r.Refused:
			s.recorded[name] = s.cfg.SourceName
			errs = append(errs, r.Err)
		}
	}
	return errors.Join(errs...)
}

// takeable returns the topics that this scanner's source may take, with their records. It
// returns none if the fleet can't be read.
func (s *sources) takeable(ctx context.Context, records map[string]registry.SourceRecord) map[string]string {
	take := map[string]string{}
	for name, r := range records {
		if r.Err == nil && r.Source != s.cfg.SourceName && (r.Source == "" || r.Source == config.FileSource) {
			take[name] = r.Source
		}
	}
	if len(take) == 0 {
		return nil
	}
	members, err := s.cfg.Fleet(ctx)
	if err != nil {
		return nil
	}
	others := slices.DeleteFunc(balance.Live(members), func(m balance.Member) bool { return m.Instance == s.cfg.Instance })
	maps.DeleteFunc(take, func(_, recorded string) bool { return !mayTake(s.cfg.SourceName, recorded, others) })
	return take
}

// mayTake reports whether a source may take a topic; others are the other scanners that
// live. Consul takes topics that no source has, and topics of files once no scanner with
// a file lives. Files take topics that no source has while all others have files too. So
// a scanner with a file can't replace the settings of scanners that use another source,
// or that don't report one.
func mayTake(source, recorded string, others []balance.Member) bool {
	byFile := func(m balance.Member) bool { return m.Source == config.FileSource }
	notByFile := func(m balance.Member) bool { return m.Source != config.FileSource }
	switch {
	case recorded == "" && source == config.FileSource:
		return !slices.ContainsFunc(others, notByFile)
	case recorded == "":
		return true
	}
	return recorded == config.FileSource && source != config.FileSource && !slices.ContainsFunc(others, byFile)
}

// inForce returns the documents to serve topics by. A topic is pending if its source
// isn't known or its document in Redis can't be read. It keeps the settings in force.
func (s *sources) inForce(ctx context.Context, docs map[string]config.Document) (good map[string]config.Document,
	pending []string) {
	good, pending = make(map[string]config.Document, len(docs)), s.unknown(docs)
	for name, doc := range docs {
		switch {
		case slices.Contains(pending, name):
		case !s.foreign(name):
			good[name] = doc
		default:
			raw, err := s.cfg.Store.Registry().Document(ctx, name)
			if err != nil {
				pending = append(pending, name)
			} else if raw != nil {
				good[name] = keptDocument(name, raw)
			}
		}
	}
	return good, pending
}

// why says which of this scanner's documents wait, and for which source; "" if none do.
func (s *sources) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := map[string][]string{} // topics by source
	for name, recorded := range s.recorded {
		if recorded != s.cfg.SourceName {
			others[recorded] = append(others[recorded], name)
		}
	}
	if len(others) == 0 {
		return ""
	}
	var from []string
	for _, source := range slices.Sorted(maps.Keys(others)) {
		where := "from " + source
		if source == "" {
			where = "from other scanners, which don't report their source"
		}
		from = append(from, named(others[source])+" "+where)
	}
	return fmt.Sprintf("this scanner takes its settings from %s, but the fleet takes %s: "+
		"this scanner's own settings for them are not applied; see \"One source of topics\" in docs/deploy.md",
		s.cfg.SourceName, strings.Join(from, ", and "))
}

// logForeign logs which of the scanner's documents wait because of another source, when that
// changes. Only one call runs at a time.
func (s *sources) logForeign(ctx context.Context) {
	why := s.why()
	switch {
	case why == s.logged:
	case why != "":
		s.cfg.Log.ErrorContext(ctx, "settings not applied: the fleet takes them from another source", "error", why)
	default:
		s.cfg.Log.InfoContext(ctx, "settings applied: this scanner's source is the topics' now")
	}
	s.logged = why
}

// topicsNamed is how many topics a text names. It counts the others.
const topicsNamed = 5

// named lists topics in order.
func named(topics []string) string {
	slices.Sort(topics)
	if more := len(topics) - topicsNamed; more > 0 {
		return fmt.Sprintf("topics %s and %d more", strings.Join(topics[:topicsNamed], ", "), more)
	}
	return "topics " + strings.Join(topics, ", ")
}
