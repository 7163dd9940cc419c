package scanner

import (
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
)

// limitedFor is for how long a note reports that the rate held tasks back. At a rate of
// one a second, workers ask no more often than that.
const limitedFor = 2 * time.Second

// note returns what this scanner reports about the topic in its heartbeat.
func (t *topic) note() (n balance.TopicNote) {
	t.retries.note(&n)
	t.minute.note(&n)
	t.notices.skipped.note(&n)
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

// differing returns the settings of a document that aren't the defaults; nil if there are
// none. It leaves out the shard count, which the placement has.
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
