//go:build measure

package producer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// trouble is a fault of Redis, and the bounds in which a call without a Timeout ends
// during it, as in docs/guarantees.md and docs/guide.md.
type trouble struct {
	name        string
	begin       func(t *testing.T) (redisAddr string, begin func())
	least, most time.Duration
	unreachable bool // from the start, so no client can be prepared
}

func troubles() []trouble {
	return []trouble{
		{"refuses connections", beginRefusing, time.Second, 10 * time.Second, false},
		{"answers READONLY", beginReadOnly, 0, 10 * time.Second, false},
		{"sends no answer", beginStandstill, 3 * time.Second, 2 * time.Minute, false},
		{"takes no connection", beginDropping, time.Minute, 3 * time.Minute, true},
	}
}

func beginRefusing(t *testing.T) (string, func()) {
	server := servertest.OwnRedis(t)
	return server.Addr(), func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	}
}

func beginStandstill(t *testing.T) (string, func()) {
	server := servertest.OwnRedis(t)
	return server.Addr(), func() {
		if err := server.Pause(); err != nil {
			t.Error(err)
		}
	}
}

// beginReadOnly makes the master a replica, as a failover does.
func beginReadOnly(t *testing.T) (string, func()) {
	server := servertest.OwnRedis(t)
	return server.Addr(), func() {
		side := redis.NewUniversalClient(servertest.RedisOptions(server.Addr()))
		defer side.Close()
		if err := side.SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
			t.Error(err)
		}
	}
}

// beginDropping opens a port whose queue of connections is full. The kernel drops new
// requests, like a network that loses all packets. No client has a connection to it
// before.
func beginDropping(t *testing.T) (string, func()) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	check.OK(t, err)
	t.Cleanup(func() { _ = syscall.Close(socket) })
	err = errors.Join(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(socket, 0))
	check.OK(t, err)
	name, err := syscall.Getsockname(socket)
	check.OK(t, err)
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for {
		conn, err := (&net.Dialer{Timeout: 500 * time.Millisecond}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return addr, func() {}
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// TestMeasureHowLongACallTakes prints how long each call takes while Redis doesn't
// answer, without a Timeout and with one. It uses go-redis's own settings, New's client
// and a caller's, each new, with one idle connection, and with several.
//
//	go test -tags measure -count 1 -v -run '^TestMeasureHowLongACallTakes$' ./producer
func TestMeasureHowLongACallTakes(t *testing.T) {
	all := calls()
	all["Get"] = func(ctx context.Context, c *Client) error { _, err := c.Get(ctx, orders, "there"); return err }
	var running sync.WaitGroup
	lines := make(chan string, 1000)
	for _, what := range troubles() {
		addr, begin := what.begin(t)
		var tries []try
		for name, call := range all {
			for _, own := range []bool{true, false} {
				for _, timeout := range []time.Duration{0, time.Second} {
					for _, connections := range []int{0, 1, 10} {
						if connections > 0 && what.unreachable {
							continue
						}
						c := blockedClient(t, addr, own, connections)
						c.timeout = timeout // set late: the preparation has no limit
						tries = append(tries, try{what, name, call, own, connections, c})
					}
				}
			}
		}
		begin()
		for _, one := range tries {
			running.Go(func() { lines <- one.measure(t) })
		}
	}
	running.Wait()
	close(lines)
	sorted := slices.Sorted(func(yield func(string) bool) {
		for line := range lines {
			if !yield(line) {
				return
			}
		}
	})
	for _, line := range sorted {
		t.Log(line)
	}
}

// try makes one call with a client of its own.
type try struct {
	what        trouble
	name        string
	call        func(context.Context, *Client) error
	own         bool
	connections int
	client      *Client
}

func (o try) measure(t *testing.T) string {
	began := time.Now()
	err := o.call(t.Context(), o.client)
	took := time.Since(began)
	line := fmt.Sprintf("%-20s timeout %-3s %-12s own client %-5t %2d connections %7.2fs %s",
		o.what.name, o.client.timeout, o.name, o.own, o.connections, took.Seconds(), kind(err))
	least, most := o.what.least, o.what.most
	if o.client.timeout > 0 {
		least, most = 0, o.client.timeout+time.Second
	}
	if took < least || took > most {
		t.Errorf("%s: want %s to %s", line, least, most)
	}
	return line
}

// blockedClient returns a client with idle connections; 0 means an unused client.
func blockedClient(t *testing.T, addr string, own bool, connections int) *Client {
	t.Helper()
	cfg := Config{Options: servertest.RedisOptions(addr)}
	if !own {
		rdb := redis.NewUniversalClient(cfg.Options)
		t.Cleanup(func() { _ = rdb.Close() })
		cfg = Config{Redis: rdb}
	}
	c, err := New(cfg)
	check.OK(t, err)
	t.Cleanup(func() { _ = c.Close() })
	if connections == 0 {
		return c
	}
	_, err = c.store.Topic(orders).Ensure(t.Context(), 1)
	for _, id := range []string{"there", "a"} {
		if err == nil {
			_, err = c.Schedule(t.Context(), request(id, In(time.Hour)))
		}
	}
	check.OK(t, err)
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for range connections {
				if _, err := c.Get(t.Context(), orders, "there"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	return c
}

func kind(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, task.ErrUncertain):
		return "ErrUncertain"
	case errors.Is(err, task.ErrUnavailable):
		return "ErrUnavailable"
	}
	return err.Error()
}
