package producer

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// telling makes connections that report writes.
func telling(wrote chan<- struct{}) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return teller{conn, wrote}, err
	}
}

type teller struct {
	net.Conn
	wrote chan<- struct{}
}

func (c teller) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	select {
	case c.wrote <- struct{}{}:
	default:
	}
	return n, err
}

// TestACallEndsWithItsContext on a caller's client that waits for an answer, while Redis
// hangs.
func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, c *Client) error{
		"schedule": func(ctx context.Context, c *Client) error { _, err := c.Schedule(ctx, request("a", Now())); return err },
		"schedule many": func(ctx context.Context, c *Client) error {
			return c.ScheduleMany(ctx, []Request{request("a", Now())})[0].Err
		},
		"cancel": func(ctx context.Context, c *Client) error { return c.Cancel(ctx, orders, "a") },
		"reschedule": func(ctx context.Context, c *Client) error {
			_, err := c.Reschedule(ctx, orders, "a", Now())
			return err
		},
		"get": func(ctx context.Context, c *Client) error { _, err := c.Get(ctx, orders, "a"); return err },
	} {
		for _, knows := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := servertest.OwnRedis(t)
				wrote := make(chan struct{}, 1)
				rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: check.Hang, Dialer: telling(wrote)})
				t.Cleanup(func() { _ = rdb.Close() })
				c, err := New(Config{Redis: rdb})
				check.OK(t, err)
				store, err := shard.New(rdb, "duefleet")
				check.OK(t, err)
				_, err = store.Topic(orders).Ensure(t.Context(), 1)
				check.OK(t, err)
				if knows { // else it first asks for Redis's time
					_, err := c.Schedule(t.Context(), request("a", In(time.Hour)))
					check.OK(t, err)
				}
				check.OK(t, server.Pause())
				for len(wrote) > 0 {
					<-wrote
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- call(ctx, c) }()
				check.Receive(t, "a command", wrote)
				cancel()
				if err := check.Receive(t, "the end of the call", ended); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
				if err := server.Resume(); err != nil { // the call's goroutine ends
					t.Fatal(err)
				}
			})
		}
	}
}

// TestACallThatAHookEndsHasAnError: if a hook of the caller's client panics, the caller's
// goroutine panics. If a hook ends its goroutine, nobody keeps waiting.
func TestACallThatAHookEndsHasAnError(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(){
		"ends its goroutine": runtime.Goexit,
		"panics":             func() { panic("from a hook") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 1)
			rdb := redis.NewClient(&redis.Options{Addr: f.addr})
			t.Cleanup(func() { _ = rdb.Close() })
			faults.Around(rdb, func(context.Context, faults.Request) error { ends(); return nil })
			c, err := New(Config{Redis: rdb, Prefix: f.prefix})
			check.OK(f.t, err)
			ended := make(chan any, 1)
			go func() {
				defer func() {
					if r := recover(); r != nil {
						ended <- r
					}
				}()
				ended <- c.Cancel(t.Context(), orders, "a")
			}()
			switch got := check.Receive(t, "the end of the call", ended).(type) {
			case error:
				is(t, got, errUnanswered)
			default:
				check.Equal(t, "panic", got, any("from a hook"))
			}
		})
	}
}
