package livepage

import (
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/operate"
)

// page is the state and the layout of `scanner status --watch`: the last reading, the
// chosen topic, and the size of the terminal. It knows neither Redis nor the terminal.
// Type Watch reports events to it, and asks for its lines.
type page struct {
	every         time.Duration // between two readings
	width, height int           // of the terminal, in characters

	status operate.Status
	read   time.Time // when status was read; zero before the first reading
	asked  time.Time // when the reading under way began; zero if none is
	failed string    // why the last reading failed, or ""

	topic  string // name of the chosen topic; "" for the first
	shards bool   // show the chosen topic's shards, not all topics
	top    int    // index of the first shard in the table
}

// reading is the result of one look at the fleet.
type reading struct {
	status operate.Status
	at     time.Time
	failed string // why there is no status; "" on success
}

// began notes that a reading is under way.
func (p *page) began(now time.Time) { p.asked = now }

// ended takes the result of a reading. After a failed one the page keeps the old status.
func (p *page) ended(r reading) {
	p.asked, p.failed = time.Time{}, r.failed
	if r.failed != "" {
		return
	}
	if len(p.status.Topics) > 0 {
		p.topic = p.status.Topics[p.chosen()].Topic // keep the choice if its index changes
	}
	p.status, p.read = r.status, r.at
}

// resized takes the size of the terminal.
func (p *page) resized(width, height int) { p.width, p.height = width, height }

// chosen returns the index of the chosen topic in the status, 0 if the topic is gone or
// none is chosen.
func (p *page) chosen() int {
	named := func(t operate.TopicStatus) bool { return t.Topic == p.topic }
	return max(0, slices.IndexFunc(p.status.Topics, named))
}

// pressed handles a key, named as keyName does, and reports whether it ends the page. It
// ignores unknown keys.
func (p *page) pressed(key string, now time.Time) (end bool) {
	switch key {
	case "q", "ctrl-c":
		return true
	case "up", "k":
		p.move(-1, now)
	case "down", "j":
		p.move(1, now)
	case "page up":
		p.move(-p.room(now), now)
	case "page down":
		p.move(p.room(now), now)
	case "enter", "s":
		p.shards, p.top = !p.shards && len(p.status.Topics) > 0, 0
	case "esc":
		p.shards = false
	}
	return false
}

// move scrolls by a number of lines through the topics, or through the shards of one.
func (p *page) move(by int, now time.Time) {
	if len(p.status.Topics) == 0 {
		return
	}
	at := p.chosen()
	if p.shards {
		rows := len(p.status.Topics[at].PerShard)
		p.top = max(0, min(p.top+by, rows-p.room(now)))
		return
	}
	at = max(0, min(at+by, len(p.status.Topics)-1))
	p.topic = p.status.Topics[at].Topic
}
