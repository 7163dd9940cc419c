package producer

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// calls are the calls of a Client; each returns its error.
func calls() map[string]func(ctx context.Context, c *Client) error {
	return map[string]func(ctx context.Context, c *Client) error{
		"Schedule": func(ctx context.Context, c *Client) error {
			_, err := c.Schedule(ctx, request("a", In(time.Hour)))
			return err
		},
		"ScheduleMany": func(ctx context.Context, c *Client) error {
			results := c.ScheduleMany(ctx, []Request{request("a", In(time.Hour)), request("b", In(time.Hour))})
			return errors.Join(results[0].Err, results[1].Err)
		},
		"Reschedule": func(ctx context.Context, c *Client) error {
			_, err := c.Reschedule(ctx, orders, "there", In(time.Minute))
			return err
		},
		"Cancel": func(ctx context.Context, c *Client) error { return c.Cancel(ctx, orders, "there") },
		"CancelMany": func(ctx context.Context, c *Client) error {
			return errors.Join(c.CancelMany(ctx, orders, []string{"there"})...)
		},
	}
}

// wire makes connections to a Redis whose next answer may be lost, and which is away
// after that.
type wire struct{ lose, away atomic.Bool }

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if w.away.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &wired{conn, w}, err
}

type wired struct {
	net.Conn
	wire *wire
}

func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.wire.lose.Load() {
		c.wire.away.Store(true)
	}
	if c.wire.away.Load() {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// TestAnErrorSaysWhetherTheCallMayHaveBeenCarriedOut: a call that was never sent
// certainly did nothing. A call whose answer was lost may have been executed, even if
// Redis is away at the repeat.
func TestAnErrorSaysWhetherTheCallMayHaveBeenCarriedOut(t *testing.T) {
	t.Parallel()
	for name, call := range calls() {
		for _, lost := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, 1)
				w := &wire{}
				options := servertest.RedisOptions(f.addr)
				options.Dialer, options.MaxRetries, options.PoolSize = w.dial, -1, 1
				if !lost {
					options.ConnMaxIdleTime = 1 // no call is written to a connection whose server is gone
				}
				c, err := New(Config{Prefix: f.prefix, Options: options})
				check.OK(f.t, err)
				t.Cleanup(func() { _ = c.Close() })
				_, err = c.Schedule(f.t.Context(), request("there", In(time.Hour)))
				check.OK(f.t, err)
				check.OK(f.t, call(f.t.Context(), c)) // Redis knows its scripts
				_, err = c.Schedule(f.t.Context(), request("there", In(time.Hour)))
				check.OK(f.t, err)
				want, not := task.ErrUnavailable, task.ErrUncertain
				if lost {
					want, not = not, want
				}
				w.lose.Store(lost)
				w.away.Store(!lost)
				err = call(f.t.Context(), c)
				if !errors.Is(err, want) || errors.Is(err, not) {
					t.Errorf("answer lost %v: got %v, want %v", lost, err, want)
				}
			})
		}
	}
}

// TestACallEndsWithItsTimeout while Redis hangs, with New's client and with a caller's.
func TestACallEndsWithItsTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	for name, call := range calls() {
		for _, knows := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := servertest.OwnRedis(t)
				options := redis.UniversalOptions{Addrs: []string{server.Addr()}, ReadTimeout: check.Hang}
				rdb := redis.NewUniversalClient(&options)
				t.Cleanup(func() { _ = rdb.Close() })
				for _, cfg := range []Config{{Redis: rdb}, {Options: &options}} {
					cfg.Timeout = timeout
					c, err := New(cfg)
					check.OK(t, err)
					t.Cleanup(func() { _ = c.Close() })
					_, err = c.store.Topic(orders).Ensure(t.Context(), 1)
					check.OK(t, err)
					if knows { // else it first asks for Redis's time or the placement
						_, err := c.Schedule(t.Context(), request("there", In(time.Hour)))
						check.OK(t, err)
					}
					check.OK(t, server.Pause())
					began := time.Now()
					err = call(t.Context(), c)
					took := time.Since(began)
					check.OK(t, server.Resume())
					want := task.ErrUnavailable
					if knows || strings.HasPrefix(name, "Cancel") && cfg.Redis != nil { // it first asks for the placement
						want = task.ErrUncertain
					}
					if !errors.Is(err, want) || took < timeout || took > check.Hang/2 {
						t.Errorf("knows %v: after %v got %v, want %v", knows, took, err, want)
					}
				}
			})
		}
	}
}

// TestARuleIsCheckedBeforeRedisIsAsked: while Redis is away, input that breaks a rule
// still gets its RuleError. Other tasks of the same call are unavailable.
func TestARuleIsCheckedBeforeRedisIsAsked(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1}})
	check.OK(t, err)
	t.Cleanup(func() { _ = c.Close() })
	ctx, good := t.Context(), request("good", In(time.Hour))
	errs := map[string]error{}
	for name, r := range map[string]Request{
		"no topic": {ID: "a", When: Now()}, "no ID": {Topic: orders, When: Now()}, "no time": {Topic: orders, ID: "a"},
		"a zero column": {Topic: orders, ID: "a", When: At(time.Unix(0, 0))},
		"no unit":       {Topic: orders, ID: "a", When: In(30)},
		"too long":      {Topic: orders, ID: "a", When: In(36526 * 24 * time.Hour)},
		"payload":       {Topic: orders, ID: "a", When: Now(), Payload: make([]byte, task.DefaultMaxPayload+1)},
	} {
		_, errs["Schedule, "+name] = c.Schedule(ctx, r)
		results := c.ScheduleMany(ctx, []Request{r, good})
		errs["ScheduleMany, "+name] = results[0].Err
		if !errors.Is(results[1].Err, task.ErrUnavailable) {
			t.Errorf("a good one beside %s: got %v", name, results[1].Err)
		}
		if name != "payload" {
			_, errs["Reschedule, "+name] = c.Reschedule(ctx, r.Topic, r.ID, r.When)
		}
	}
	errs["Cancel"] = c.Cancel(ctx, orders, "")
	errs["CancelMany"] = c.CancelMany(ctx, orders, []string{"", "a"})[0]
	_, errs["Get"] = c.Get(ctx, orders, "")
	errs["GetMany"] = c.GetMany(ctx, orders, []string{"", "a"})[0].Err
	errs["IDs"] = firstError(ctx, c, "")
	for _, err := range c.List(ctx, orders, Filter{Limit: -1}) {
		errs["List"] = err
	}
	for name, err := range errs {
		var rule *task.RuleError
		if !errors.As(err, &rule) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestReadingFromARedisThatIsAwayIsUnavailable. So is every call whose first request
// can't be sent.
func TestReadingFromARedisThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1}})
	check.OK(t, err)
	t.Cleanup(func() { _ = c.Close() })
	all := calls()
	all["Get"] = func(ctx context.Context, c *Client) error { _, err := c.Get(ctx, orders, "a"); return err }
	all["GetMany"] = func(ctx context.Context, c *Client) error { return c.GetMany(ctx, orders, []string{"a"})[0].Err }
	all["List"] = func(ctx context.Context, c *Client) error {
		for _, err := range c.List(ctx, orders, Filter{}) {
			return err
		}
		return nil
	}
	for name, call := range all {
		if err := call(t.Context(), c); !errors.Is(err, task.ErrUnavailable) || errors.Is(err, task.ErrUncertain) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
