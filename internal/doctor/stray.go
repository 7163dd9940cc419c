package doctor

import (
	"maps"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/problem"
)

// split is a fleet in which some scanners have a topic's document and others don't.
type split struct{ without, with, sources []string }

// withoutDocument returns which live scanners report a topic as an orphan and which have
// its document. others is false if none has, or if none is known to have: then the topic is
// an orphan.
func (f fleetView) withoutDocument(topic string) (s split, others bool) {
	sources := map[string]bool{}
	for _, p := range f.of(problem.TopicOrphan) {
		if p.Topic == topic {
			s.without = p.Nodes
		}
	}
	for _, m := range f.live() {
		if !slices.Contains(s.without, m.Instance) && m.Documents != 0 {
			s.with = append(s.with, m.Instance)
			sources[m.Source] = true
		}
	}
	slices.Sort(s.with)
	s.sources = slices.Sorted(maps.Keys(sources))
	return s, len(s.without) > 0 && len(s.with) > 0
}

func (s split) what() string {
	return scanners(s.without, "has no document of it; ", "have no document of it; ") +
		scanners(s.with, "has, from ", "have, from ") + strings.Join(s.sources, " and ")
}

// fix returns the advice. too is true if doctor's configuration lacks the document as well.
func (s split) fix(too bool) string {
	names := "scanner " + strings.Join(s.without, ", ")
	return "give " + names + choose(too, " and this configuration", "") + " their source, or stop it; the topic stays"
}
