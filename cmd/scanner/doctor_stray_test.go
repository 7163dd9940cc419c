package main

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
)

// TestDoctorNamesAScannerWithoutADocument: if other scanners have the document, the topic is
// no orphan, and no advice removes it. That holds for doctor with the configuration of the
// others and with the one of that scanner.
func TestDoctorNamesAScannerWithoutADocument(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "topics: {orders: {}}\n")
	o.serve("orders", 1)
	o.serve("bills", 1)
	members := map[string]*atomic.Pointer[balance.Member]{}
	for _, name := range []string{"one", "two", "stray"} {
		members[name] = o.member(name)
	}
	reports := func(name, source string, documents uint64, problems ...problem.Problem) {
		t.Helper()
		members[name].Store(&balance.Member{Applied: 7, Source: source, Documents: documents,
			Problems: append([]problem.Problem{}, problems...)})
		o.heard(name, func(m balance.Member) bool { return m.Documents == documents })
	}
	orphan := func(topic string) problem.Problem {
		return problem.New(problem.TopicOrphan, topic, "orphan: this scanner's source has no document of it")
	}
	reports("one", "file", 1)
	reports("two", "file", 1)
	reports("stray", "consul", 2, orphan("orders"), orphan("bills"))
	o.finds("with the configuration of the others", "topic orders served", "fail: scanner stray has no document of it; "+
		"scanners one, two have, from file -> give scanner stray their source, or stop it; the topic stays")
	o.finds("with the configuration of the stray", "topic bills document", "fail: scanner stray has no document of it; "+
		"scanners one, two have, from file; this configuration has none either -> give scanner stray and this configuration "+
		"their source, or stop it; the topic stays")
	findings, _ := o.examined()
	for _, f := range findings {
		if strings.Contains(f.What+f.Fix, "topic rm") || strings.Contains(f.What+f.Fix, "remove it") {
			t.Errorf("%s: %s -> %s", f.Check, f.What, f.Fix)
		}
	}
	reports("one", "file", 3, orphan("bills"))
	reports("two", "file", 3, orphan("bills"))
	o.finds("if no scanner has it", "topic bills document", "fail: an orphan: Redis holds the topic, and it has no "+
		"document -> put it back under topics in")
}
