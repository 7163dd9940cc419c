package operate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/balance"
)

// Verdict is what the living scanners make of a topic's document.
type Verdict struct {
	Topic string
	// Live is how many scanners there are, Applied how many of them deliver by the
	// document.
	Live, Applied int
	// Elsewhere counts scanners that go by another source's documents; they are not among
	// Live.
	Elsewhere int
	// Refused, Blocked and Open count the others by what they say: that the document is
	// broken; that they work by it, and something keeps the topic from being delivered;
	// what they wait for.
	Refused, Blocked, Open map[string]int
}

// ReadVerdict reads what scanners say in their heartbeats of the document of a topic
// that was written at index, or of a later one.
func ReadVerdict(fleet []balance.Member, topic string, index uint64) Verdict {
	v := Verdict{Topic: topic, Refused: map[string]int{}, Blocked: map[string]int{}, Open: map[string]int{}}
	for _, m := range fleet {
		if m.Alive && m.Refused != "" {
			v.Elsewhere++
		}
		if !m.Alive || m.Refused != "" {
			continue
		}
		v.Live++
		switch {
		case m.Applied < index:
			v.Open[cmp.Or(m.Errors[""], "it has not been read yet")]++
		case m.Errors[topic] != "":
			v.Refused[m.Errors[topic]]++
		case m.Blocked[topic] != "":
			v.Blocked[cmp.Or(m.Troubles[topic], m.Blocked[topic])]++
		case slices.Contains(m.Applying, topic):
			v.Open[cmp.Or(m.Troubles[topic], "RabbitMQ has not answered yet")]++
		default:
			v.Applied++
		}
	}
	return v
}

// Final reports whether there is nobody left to wait for.
func (v Verdict) Final() bool { return len(v.Open) == 0 }

// Text is the verdict in a line, as in "applied by 2 scanners".
func (v Verdict) Text() string {
	if v.Live == 0 && v.Elsewhere > 0 {
		return "not applied: the scanners that run go by another source of topics, which `scanner status` names"
	}
	if v.Live == 0 {
		return "no scanner runs, so nobody has applied it yet"
	}
	var parts []string
	if v.Applied > 0 {
		parts = append(parts, "applied by "+v.share(v.Applied))
	}
	for _, of := range []struct {
		what string
		by   map[string]int
	}{{"refused", v.Refused}, {"blocked", v.Blocked}, {"not applied yet", v.Open}} {
		for _, why := range slices.Sorted(maps.Keys(of.by)) {
			parts = append(parts, fmt.Sprintf("%s by %s: %s", of.what, v.share(of.by[why]), why))
		}
	}
	return strings.Join(parts, "; ")
}

// share writes a number of the scanners.
func (v Verdict) share(n int) string {
	switch {
	case n < v.Live:
		return fmt.Sprintf("%d of %d scanners", n, v.Live)
	case n == 1:
		return "1 scanner"
	}
	return fmt.Sprintf("%d scanners", n)
}
