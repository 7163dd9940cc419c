package admin

import (
	"time"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/recurrence"
	"github.com/duefleet/duefleet/task"
)

// nextTimes is how many times of a recurring task are shown.
const nextTimes = 3

// RuleText returns the rule of a recurring task for people, as in "every 1h0m0s until
// 2027-01-01T00:00:00Z". If the rule is wrong, the text is the mistake.
func RuleText(r task.Recurrence) string {
	rule, err := recurrence.Of(r)
	if err != nil {
		return "unreadable rule: " + err.Error()
	}
	return rule.String()
}

// NextTimes returns the next three times of a recurring task, or fewer if it ends: see
// recurrence.Times.
func NextTimes(l Listed, now time.Time) []time.Time {
	return recurrence.Times(*l.Recurrence, l.Due, now, nextTimes)
}

// RecurrenceLine is the rule of a recurring task in JSON. It has only what is set. The times
// are RFC 3339.
type RecurrenceLine struct {
	Every string `json:"every,omitempty"`
	Cron  string `json:"cron,omitempty"`
	Zone  string `json:"zone,omitempty"`
	Until string `json:"until,omitempty"`
	// Runs is how many are left; absent if there is no limit.
	Runs int  `json:"runs,omitempty"`
	Each bool `json:"each,omitempty"`
	// Planned is when the stored run is due by the rule; absent if it wasn't moved.
	Planned string `json:"planned,omitempty"`
	// Next has the next three times: see NextTimes.
	Next []string `json:"next,omitempty"`
}

// newRecurrenceLine returns nil for a task that doesn't recur.
func newRecurrenceLine(l Listed, now time.Time) *RecurrenceLine {
	r := l.Recurrence
	if r == nil {
		return nil
	}
	line := &RecurrenceLine{Cron: r.Cron, Zone: r.Zone, Until: duetime.Text(r.Until), Runs: r.Runs, Each: r.Each,
		Planned: duetime.Text(r.Planned)}
	if r.Every > 0 {
		line.Every = r.Every.String()
	}
	for _, at := range NextTimes(l, now) {
		line.Next = append(line.Next, duetime.Text(at))
	}
	return line
}
