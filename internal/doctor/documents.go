package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
)

// topicsNamed is how many topics a finding names at most. It gives the number of the
// others.
const topicsNamed = 5

// examineDocuments compares the documents that live members have applied. It leaves out
// members whose version doesn't report them. Other checks report documents that a member
// refuses, and sources that it can't read.
func (p Target) examineDocuments(ctx context.Context, r *report, live []balance.Member) {
	by := map[uint64][]balance.Member{}
	for _, m := range live {
		if m.Documents != 0 {
			by[m.Documents] = append(by[m.Documents], m)
		}
	}
	if len(by) < 2 {
		return
	}
	if p.Consul == nil {
		r.warn("fleet configuration", "make their files the same, then send each scanner SIGHUP",
			"scanners use different documents of topics: %s", grouped(by))
		return
	}
	behind, compared := p.compareNotes(ctx, live)
	for _, m := range live {
		if topics := behind[m.Instance]; len(topics) > 0 && m.Errors[""] == "" {
			r.warn("fleet configuration", p.command("status")+"; if it lasts, look at that scanner's log and at its way to "+
				"consul",
				"scanner %s hasn't applied the document of %s", m.Instance, named(topics))
		}
	}
	if !compared {
		r.warn("fleet configuration", p.command("status"),
			"scanners use different documents of topics, and their notes in consul don't say which: %s", grouped(by))
	}
}

// compareNotes compares each member's note in Consul with the documents there. behind
// holds, by instance, the topics whose current document the member hasn't applied. It
// leaves out documents that the member refuses. compared is false if Consul doesn't
// answer or a member has no note.
func (p Target) compareNotes(ctx context.Context, live []balance.Member) (behind map[string][]string, compared bool) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	notes, err := p.Consul.ReadStatuses(ctx)
	if err != nil {
		return nil, false
	}
	list, err := p.Consul.List(ctx)
	if err != nil {
		return nil, false
	}
	behind, compared = map[string][]string{}, true
	for _, m := range live {
		if m.Documents == 0 {
			continue
		}
		var note struct {
			Documents map[string]string `json:"documents"`
		}
		if json.Unmarshal(notes[m.Instance], &note) != nil || note.Documents == nil {
			compared = false
			continue
		}
		for _, d := range list {
			if m.Errors[d.Topic] == "" && note.Documents[d.Topic] != config.Digest(d.Raw) {
				behind[m.Instance] = append(behind[m.Instance], d.Topic)
			}
		}
	}
	return behind, compared
}

// grouped lists the members, separated by commas between members with the same documents,
// and by semicolons otherwise.
func grouped(by map[uint64][]balance.Member) string {
	var groups []string
	for _, members := range by {
		var names []string
		for _, m := range members {
			names = append(names, m.Instance)
		}
		slices.Sort(names)
		groups = append(groups, strings.Join(names, ", "))
	}
	slices.Sort(groups)
	return strings.Join(groups, "; ")
}

// named names topics, as in "topics a, b and 3 more".
func named(topics []string) string {
	switch more := len(topics) - topicsNamed; {
	case len(topics) == 1:
		return "topic " + topics[0]
	case more > 0:
		return fmt.Sprintf("topics %s and %d more", strings.Join(topics[:topicsNamed], ", "), more)
	default:
		return "topics " + strings.Join(topics, ", ")
	}
}
