package scanner

import (
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
)

// limitedFor is for how long it is told that the rate held tasks back: at a rate of one a
// second nobody asks more often.
const limitedFor = 2 * time.Second

// note is what this scanner says of the topic in its heartbeat.
func (t *topic) note() (n balance.TopicNote) {
	t.retries.note(&n)
	t.minute.note(&n)
	n.Unreadable = t.notices.skipped.tasks()
	s := t.settings()
	n.Rate, n.Settings = s.Rate, *t.differs.Load()
	if n.Paused = t.paused(); n.Paused {
		n.PausedUntil, n.PausedReason = s.PauseEnds(), s.PausedReason
	}
	if at := t.limited.Load(); at != nil {
		n.Limited = s.Rate > 0 && time.Since(*at) < limitedFor
	}
	return n
}

// differing are the settings of a document that aren't the defaults, without the shard
// count, which the placement has; nil if there are none.
func differing(doc config.Document) map[string]string {
	var all map[string]string
	for _, c := range config.Diff(config.DefaultTopic(doc.Name), doc.Topic) {
		if c.Key == "shards" {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[c.Key] = c.New
	}
	return all
}
