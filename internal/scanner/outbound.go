package scanner

import (
	"fmt"
	"sync"

	"github.com/duefleet/duefleet/internal/forward"
)

// topicsOfConnection is how many topics publish on one connection to RabbitMQ. A topic that is awake
// has a channel, two while one replaces another. RabbitMQ gives a connection 2,047 by default.
const topicsOfConnection = 1500

// outbound are the connections on which topics publish due tasks and answers.
type outbound struct {
	cfg  forward.Config
	most int                       // topics of one connection
	run  func(*forward.Connection) // keeps a further one up

	mu  sync.Mutex
	all []*carrier
}

// carrier is a connection, and how many topics publish on it.
type carrier struct {
	*forward.Connection
	topics int
}

// newOutbound returns the first connection alone. Its caller keeps it up.
func newOutbound(cfg forward.Config, run func(*forward.Connection)) (*outbound, error) {
	first, err := forward.New(cfg)
	if err != nil {
		return nil, err
	}
	return &outbound{cfg: cfg, most: topicsOfConnection, run: run, all: []*carrier{{Connection: first}}}, nil
}

// take returns the connection for one more topic, until release is called. It opens another one if
// all have as many topics as they may.
func (o *outbound) take() (c *forward.Connection, release func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found *carrier
	for _, one := range o.all {
		if one.topics < o.most {
			found = one
			break
		}
	}
	if found == nil {
		cfg := o.cfg
		cfg.Name = fmt.Sprintf("%s, %d", cfg.Name, len(o.all)+1)
		cfg.Log = cfg.Log.With("connection", len(o.all)+1)
		more, err := forward.New(cfg)
		if err != nil { // never: it was checked with the first
			return o.all[0].Connection, func() {}
		}
		found = &carrier{Connection: more}
		o.all = append(o.all, found)
		o.run(more)
	}
	found.topics++
	return found.Connection, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		found.topics--
	}
}

// state is forward.Connection.State of all connections together: whether each is connected, and
// whether one is blocked.
func (o *outbound) state() (connected, blocked bool, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.all {
		up, held, why := one.State()
		if !up {
			return false, false, why
		}
		if held && !blocked {
			blocked, reason = true, why
		}
	}
	return true, blocked, reason
}
