package doctor

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/duefleet/duefleet/internal/admin"
)

// Grouped returns the findings for a reader, the worse ones first. Each kind has three, followed
// by one that counts the others and names their topics. Findings are of one kind if
// they differ only in their topic, texts and advice.
func Grouped(findings []Finding) (shown []Finding) {
	about := regexp.MustCompile(`^topic (.+?) (intake \w+|dead letters|old queue|old intake|\w+)$`)
	kind := func(f Finding) string {
		parts := about.FindStringSubmatch(f.Check)
		if parts == nil { // it isn't about a topic
			return ""
		}
		return string(f.State) + " " + parts[2]
	}
	for f, more := range admin.Few(findings, kind) {
		if more != nil {
			topics := make([]string, len(more))
			for i, f := range more {
				topics[i] = about.FindStringSubmatch(f.Check)[1]
			}
			f = Finding{Check: "topics " + about.FindStringSubmatch(f.Check)[2], State: f.State, What: fmt.Sprintf(
				"%d more like these: %s; -o json shows all", len(more), named(topics))}
		}
		shown = append(shown, f)
	}
	worst := []State{Fail, Warn, NotChecked, Info, OK}
	slices.SortStableFunc(shown, func(a, b Finding) int {
		return slices.Index(worst, a.State) - slices.Index(worst, b.State)
	})
	return shown
}
