package doctor

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/config"
)

// leastRights stands in advice for the rights that grant puts there.
const leastRights = "CONFIGURE WRITE READ"

// grant puts the least rights that the fleet's topics need into the advice about brokers.
func grant(findings []Finding, docs documents) {
	rights := leastRights + `, for which docs/deploy.md has the values under "Rights in RabbitMQ"`
	if docs.known && len(docs.good) > 0 {
		rights = rabbitRights(docs.good)
	}
	for i := range findings {
		findings[i].Fix = strings.Replace(findings[i].Fix, leastRights, rights, 1)
	}
}

// rabbitRights returns what a scanner may configure, write and read, as expressions that a
// shell takes. docs/deploy.md says the same for one topic.
func rabbitRights(topics map[string]config.Topic) string {
	var configure, write, read []string
	for _, t := range topics {
		exchange := cmp.Or(t.Exchange, defaultExchange)
		write = append(write, exchange)
		if d := t.Declare; d != nil {
			configure = append(configure, exchange, d.Queue)
			write = append(write, d.Queue)
			read = append(read, exchange)
			if d.DeadLetter != "" {
				configure, write = append(configure, d.DeadLetter), append(write, d.DeadLetter)
				read = append(read, d.Queue, d.DeadLetter)
			}
		}
		if !t.TakesIn() {
			continue
		}
		write, read = append(write, t.Intake.Refused(), defaultExchange), append(read, t.Intake.Queue)
		if t.Declare != nil {
			made := []string{t.Intake.Queue, t.Intake.Refused()}
			in, canary := t.Intake.Exchange, t.Intake.Canary()
			configure = append(append(configure, in, canary), made...)
			write, read = append(append(write, in), made...), append(append(read, in, canary), made...)
		}
	}
	return expression(configure) + " " + expression(write) + " " + expression(read)
}

// defaultExchange is the name of AMQP's default exchange in RabbitMQ's rights.
const defaultExchange = "amq.default"

// expression returns one that matches the names and nothing else.
func expression(names []string) string {
	set := map[string]bool{}
	for _, name := range names {
		set[regexp.QuoteMeta(name)] = true
	}
	switch all := slices.Sorted(maps.Keys(set)); len(all) {
	case 0:
		return "'^$'"
	case 1:
		return "'^" + all[0] + "$'"
	default:
		return "'^(" + strings.Join(all, "|") + ")$'"
	}
}
