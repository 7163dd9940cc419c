package intake

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
)

// silent is a proxy in front of RabbitMQ. Once cut, RabbitMQ sees the connections end, and
// their clients don't.
type silent struct {
	mu  sync.Mutex
	all []net.Conn // to RabbitMQ
}

// newSilent returns a proxy and the URL through it.
func newSilent(t *testing.T, rawURL string) (p *silent, through string) {
	t.Helper()
	u, err := url.Parse(rawURL)
	check.OK(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	p = &silent{}
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	target := u.Host
	u.Host = listener.Addr().String()
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			p.mu.Lock()
			p.all = append(p.all, server)
			p.mu.Unlock()
			running.Go(func() { _, _ = io.Copy(client, server) })
			running.Go(func() {
				_, _ = io.Copy(server, client)
				_, _ = io.Copy(io.Discard, client)
				_, _ = server.Close(), client.Close()
			})
		}
	})
	return p, u.String()
}

func (p *silent) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, server := range p.all {
		_ = server.Close()
	}
}

// stall starts an intake that stalls before its first call of a script, after it got the
// message that ask publishes. RabbitMQ ends its connections, and the intake doesn't see that.
// wake has it go on, and returns once it has ended.
func (h *harness) stall(script string, ask func()) (wake func()) {
	h.t.Helper()
	text, err := shard.Script(script)
	check.OK(h.t, err)
	held, release, sent := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	rdb := fixture.Client(h.t, h.redis.Addr)
	faults.Around(rdb, func(ctx context.Context, r faults.Request) error {
		runs := slices.ContainsFunc(r.Commands, func(c redis.Cmder) bool { return faults.Runs(c, text) })
		if !runs || first.Swap(true) {
			return r.Send(ctx)
		}
		close(held)
		<-release
		defer close(sent)
		return r.Send(ctx)
	})
	good, direct := h.redis.Store, h.url
	h.redis.Store, err = shard.New(rdb, h.redis.Prefix)
	check.OK(h.t, err)
	var proxy *silent
	proxy, h.url = newSilent(h.t, h.url)
	end := h.start()
	h.redis.Store, h.url = good, direct
	ask()
	check.Closed(h.t, "the intake to stall before "+script, held)
	proxy.cut()
	return func() {
		h.t.Helper()
		close(release)
		check.Closed(h.t, "the script to be sent", sent)
		end() // leaves it two seconds
	}
}

// answered publishes a request and waits until an intake has answered it with ok.
func (h *harness) answered(to, id, verb string, pairs ...any) {
	h.t.Helper()
	correlation := shard.NewOp()
	h.publish(request(to, string(correlation), id, verb, pairs...))
	check.Until(h.t, "the answer to "+verb, func() bool {
		r, of := h.answer(to)
		return of == string(correlation) && r.Code == codeOK
	})
}

// TestAStalledIntakeChangesNothing: it wakes after another one took its queue over and
// carried out later messages of the same ID.
func TestAStalledIntakeChangesNothing(t *testing.T) {
	t.Parallel()
	const due = int64(4_102_444_800_000)
	for name, c := range map[string]struct {
		script, verb string
		ask          []any
		before       bool                            // a task is there before
		later        func(h *harness, to, id string) // what another intake carries out, and a failover
	}{
		"schedule": {"put", Schedule, []any{HeaderIn, "1h"}, false, func(h *harness, to, id string) {
			h.answered(to, id, Cancel)
		}},
		"before its term": {"begin_term", Schedule, []any{HeaderIn, "1h"}, false, func(h *harness, to, id string) {
			h.answered(to, id, Cancel)
		}},
		"before its term, and Redis loses the other one": {"begin_term", Schedule, []any{HeaderIn, "1h"}, false,
			func(h *harness, to, id string) {
				h.answered(to, id, Cancel)
				lost := h.redis.Client.HDel(h.t.Context(), h.redis.Prefix+":placement:{orders}", "intake")
				check.Equal(h.t, "terms that Redis lost", lost.Val(), 1)
			}},
		"cancel": {"delete", Cancel, nil, true, func(h *harness, to, id string) {
			h.answered(to, id, Schedule, HeaderIn, "2h")
		}},
		"move": {"reschedule", Move, []any{HeaderDue, due}, true, func(h *harness, to, id string) {
			h.answered(to, id, Move, HeaderDue, due+1000)
		}},
	} {
		for change, shards := range map[string]int{"the shards stay": 0, "M grows": 7, "M shrinks": 2} {
			t.Run(name+", "+change, func(t *testing.T) {
				t.Parallel()
				h := newHarness(t)
				to, id := h.answers(), "x"
				change := shard.Placement{Epoch: 2, Shards: max(shards, 1), Previous: h.placement.Shards, Phase: shard.Migrating}
				for !change.Moving(id) {
					id += "x"
				}
				if c.before {
					end := h.start()
					h.answered(to, id, Schedule, HeaderIn, "1h")
					end()
				}
				wake := h.stall(c.script, func() { h.publish(newMessage(id, append([]any{HeaderVerb, c.verb}, c.ask...)...)) })
				if shards > 0 {
					began, err := h.redis.Orders().Begin(t.Context(), h.placement, shards)
					if check.OK(h.t, err); !began {
						t.Fatal("the change didn't begin")
					}
				}
				h.start()
				c.later(h, to, id)
				before := h.records()
				wake()
				after := h.records()
				if len(before) != len(after) || before[id].due != after[id].due {
					t.Errorf("before the stalled intake woke: %v; after: %v", before, after)
				}
			})
		}
	}
}

// TestTwoActiveConsumers: a queue without x-single-active-consumer gives messages to both.
// Each takes the queue over from the other in turn. All is carried out, and the log says what
// is wrong.
func TestTwoActiveConsumers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.inlet.Declare, h.inlet.Queue = false, "orders.shared"
	_, err := h.client.QueueDeclare(h.inlet.Queue, true, false, false, false, nil)
	check.OK(h.t, err)
	check.OK(h.t, h.client.QueueBind(h.inlet.Queue, "#", exchange, false, nil))
	h.start()
	h.start()
	check.Until(t, "both to consume", func() bool {
		q, err := h.client.QueueDeclarePassive(h.inlet.Queue, true, false, false, false, nil)
		check.OK(h.t, err)
		return q.Consumers == 2
	})
	// RabbitMQ may send all messages of a round to one of them.
	stored := 0
	check.Until(t, "the log to name the argument", func() bool {
		h.publishMany(fmt.Sprint("round", stored, "-"), 10)
		stored += 10
		check.Until(t, "a round to be stored", func() bool { return len(h.records()) == stored })
		return stored >= 30 && strings.Contains(h.log.String(), "no x-single-active-consumer")
	})
}
