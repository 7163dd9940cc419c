package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

// alike is how many topics have a line each for the same text.
const alike = 3

// remark is a line about a topic.
type remark struct {
	topics []string // one, or several after lines joined them
	kind   string   // the subject, such as the key of a setting
	text   string   // the line without its topic
	line   string
}

// remarks are lines about topics.
type remarks []remark

// add adds "topic X: text", with a hint that may name the topic.
func (r *remarks) add(topic, text, hint string) {
	*r = append(*r, remark{[]string{topic}, "scanners", text, "topic " + topic + ": " + text + hint})
}

// addPlan adds a line for each thing that a plan does.
func (r *remarks) addPlan(p topicconfig.Plan) {
	topic := p.After.Name
	for i, line := range p.Lines() {
		one := remark{[]string{topic}, "left by changes", line, line}
		if change := i - len(p.Notes); change < 0 {
			one.kind, one.text = "documents", p.Notes[i]
		} else if change < len(p.Changes) {
			one.kind, one.text = p.Changes[change].Key, line[len(topic)+1:]
		}
		*r = append(*r, one)
	}
}

// lines returns the remarks, sorted by kind. It joins the remarks of more than three topics with
// the same text. Each kind has the three lines with the most topics, and one that counts the
// other topics. hint says where the other remarks are.
func (r remarks) lines(hint string) (lines []string) {
	topics, kinds := map[string][]string{}, map[string]int{}
	for i, one := range r {
		topics[one.text] = append(topics[one.text], one.topics...)
		if _, there := kinds[one.kind]; !there {
			kinds[one.kind] = i
		}
	}
	var joined remarks
	for _, one := range r {
		if same := topics[one.text]; len(same) > alike {
			if same[0] != one.topics[0] {
				continue
			}
			one.topics = same
			one.line = fmt.Sprintf("%s: %d topics: %s", one.text, len(same), admin.Names(same))
		}
		joined = append(joined, one)
	}
	slices.SortStableFunc(joined, func(a, b remark) int {
		return cmp.Or(kinds[a.kind]-kinds[b.kind], len(b.topics)-len(a.topics))
	})
	for one, more := range admin.Few(joined, func(one remark) string { return one.kind }) {
		if more != nil {
			var others []string
			for _, other := range more {
				others = append(others, other.topics...)
			}
			one.line = fmt.Sprintf("%s: %d topics with others: %s; %s", one.kind, len(others), admin.Names(others), hint)
		}
		lines = append(lines, one.line)
	}
	return lines
}

// printLines prints lines.
func printLines(out io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// asError returns an error for each line, joined; nil without lines.
func asError(lines []string) error {
	var errs []error
	for _, line := range lines {
		errs = append(errs, errors.New(line))
	}
	return errors.Join(errs...)
}
