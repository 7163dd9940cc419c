package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
)

// drain ends a check. Each running actor dies, finishes now, or finishes only after the
// change is over. A healthy fleet then ends the change and delivers everything.
func (m *machine) drain(t *rapid.T) {
	m.note("the end begins")
	var late []*actor
	for len(m.actors) > len(late) {
		a := m.actors[len(late)]
		switch rapid.IntRange(0, 2).Draw(t, "fate") {
		case 0:
			m.finish(a)
		case 1:
			m.proceed(a, crash)
			m.finish(a)
		default:
			late = append(late, a)
		}
	}
	m.settleDown()
	for _, a := range late {
		m.finish(a)
	}
	m.settleDown()
	m.inPlace()
	for s := range m.last.placement.Shards {
		m.replayIn(s)
	}
	m.advance(48 * time.Hour)
	for round := 0; len(m.last.copies) > 0 && round < 2*runsEach*len(names); round++ {
		m.deliverDue()
	}
	if len(m.last.copies) > 0 {
		m.violated(fmt.Errorf("%d tasks are never delivered", len(m.last.copies)))
	}
	m.sweep()
}

// sweep checks that a sweep empties the index of groups, in which crashes may have left members.
func (m *machine) sweep() {
	m.advance(20 * time.Minute)
	tasks := router.New(m.topic.Store()).Topic(topic)
	for _, part := range m.topic.Index() {
		for over := false; !over; {
			var err error
			_, over, err = tasks.SweepGroups(m.ctx, part)
			m.must(err)
		}
	}
	m.observe()
	if n := len(m.last.members); n > 0 {
		m.violated(fmt.Errorf("%d members are left in the index of groups", n))
	}
}

// settleDown runs healthy movers and scanners until the placement is stable.
func (m *machine) settleDown() {
	for round := 0; m.last.placement.Phase == shard.Migrating; round++ {
		if round == 30 {
			m.violated(errors.New("promise 6: the change never ends"))
		}
		for s := range m.last.placement.Scanned() {
			m.named++
			v := &mover{machine: m, name: fmt.Sprint("mover ", m.named), shard: s, page: 3}
			m.must(v.run(m.ctx))
			m.note("healthy mover at shard %d", s)
			m.observe()
			if m.last.placement.Phase == shard.Stable {
				return
			}
		}
		m.deliverDue()
		m.advance(6 * time.Second)
	}
}

// deliverDue runs healthy scanners that deliver every due task.
func (m *machine) deliverDue() {
	for s := range m.last.placement.Scanned() {
		if !slices.ContainsFunc(m.last.copies, func(c stored) bool { return c.shard == s }) {
			continue
		}
		m.named++
		m.note("healthy scanner at shard %d", s)
		m.violated(m.scan(m.ctx, nil, scan{
			name: fmt.Sprint("scanner ", m.named), shard: s, limit: 100, publishResult: confirmed,
		}))
		m.observe()
	}
}

// inPlace checks that no task is misplaced and no handled IDs are left, once the
// placement is stable.
func (m *machine) inPlace() {
	for s, handled := range m.last.handled {
		if len(handled) == 0 {
			continue
		}
		_, err := m.topic.Shard(s).Fence(m.ctx, m.last.placement)
		m.must(err)
	}
	m.observe()
	for s, handled := range m.last.handled {
		if len(handled) > 0 {
			m.violated(fmt.Errorf("shard %d still has %d handled IDs after the change", s, len(handled)))
		}
	}
}
