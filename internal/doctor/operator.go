package doctor

import "regexp"

// These find verbs for which the rights of scanners aren't enough. listVerbs list tasks or
// remove a topic in Redis. topicVerbs write a topic's document to Consul.
var (
	listVerbs  = regexp.MustCompile(`scanner (parked|tasks|topic rm) `)
	topicVerbs = regexp.MustCompile(`scanner topic (apply|create|pause|resume|rm|set|undo) `)
)

// operate says in the advice which identity its verbs need, if the one of the settings
// isn't enough.
func (found answers) operate(findings []Finding) {
	const who = "; that takes an operator's configuration: docs/deploy.md, Rights"
	for i, f := range findings {
		needs := func(text string) bool {
			return !found.lists && listVerbs.MatchString(text) || found.docs.readOnly && topicVerbs.MatchString(text)
		}
		switch {
		case needs(f.Fix):
			findings[i].Fix += who
		case f.Fix == "" && needs(f.What):
			findings[i].What += who
		}
	}
}
