package doctor

import (
	"fmt"
	"regexp"
)

// shownAlike is how many findings of one kind Grouped leaves.
const shownAlike = 3

// Grouped returns the first three findings of each kind, followed by one that counts the
// others and names their topics. Findings are of one kind if they differ only in their
// topic, texts and advice.
func Grouped(findings []Finding) (shown []Finding) {
	type kind struct {
		state State
		what  string
	}
	about := regexp.MustCompile(`^topic (.+?) (intake \w+|dead letters|old queue|old intake|\w+)$`)
	topics, counted := map[kind][]string{}, map[kind]int{}
	for _, f := range findings {
		parts := about.FindStringSubmatch(f.Check)
		if parts == nil { // it isn't about a topic
			shown = append(shown, f)
			continue
		}
		k := kind{f.State, parts[2]}
		switch topics[k] = append(topics[k], parts[1]); len(topics[k]) {
		case shownAlike + 1:
			counted[k] = len(shown)
			shown = append(shown, Finding{Check: "topics " + k.what, State: f.State})
		case 1, 2, shownAlike:
			shown = append(shown, f)
		}
	}
	for k, at := range counted {
		rest := topics[k][shownAlike:]
		shown[at].What = fmt.Sprintf("%d more like these: %s; -o json shows all", len(rest), named(rest))
	}
	return shown
}
