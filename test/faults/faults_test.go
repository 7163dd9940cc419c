package faults_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// client returns a client, and the name of a counter that starts at 0.
func client(t *testing.T) (redis.UniversalClient, string) {
	t.Helper()
	addr, prefix := servertest.Redis(t)
	rdb := redis.NewUniversalClient(servertest.RedisOptions(addr))
	t.Cleanup(func() { _ = rdb.Close() })
	if err := rdb.Exists(t.Context(), prefix+":n").Err(); err != nil { // the connection is there
		t.Fatal(err)
	}
	return rdb, prefix + ":n"
}

func TestALostReplyIsOfACommandThatRan(t *testing.T) {
	t.Parallel()
	rdb, key := client(t)
	over := faults.Lose(rdb, 2, func(cmd redis.Cmder) bool { return cmd.Name() == "incr" })
	if err := rdb.Set(t.Context(), key, 10, 0).Err(); err != nil {
		t.Fatalf("a command that isn't chosen: %v", err)
	}
	for range 2 {
		if err := rdb.Incr(t.Context(), key).Err(); !errors.Is(err, faults.ErrLost) || over() {
			t.Errorf("got %v, over %t", err, over())
		}
	}
	if n, err := rdb.Incr(t.Context(), key).Result(); n != 13 || err != nil || !over() {
		t.Errorf("got %d, %v, over %t; want 13", n, err, over())
	}
}

func TestADeadClientSendsNothing(t *testing.T) {
	t.Parallel()
	rdb, key := client(t)
	other := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: servertest.RedisOptions(first(rdb)).Addrs})
	t.Cleanup(func() { _ = other.Close() })
	dead := errors.New("dead")
	faults.Die(rdb, 1, dead)
	check.OK(t, rdb.Incr(t.Context(), key).Err())
	cmds, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Incr(t.Context(), key)
		p.Incr(t.Context(), key)
		return nil
	})
	if !errors.Is(err, dead) || len(cmds) != 2 || !errors.Is(cmds[1].Err(), dead) {
		t.Errorf("a pipeline: %v, %v", cmds, err)
	}
	if err := rdb.Incr(t.Context(), key).Err(); !errors.Is(err, dead) {
		t.Errorf("a command: %v", err)
	}
	if n, err := other.Get(t.Context(), key).Int(); n != 1 || err != nil {
		t.Errorf("Redis has %d, %v; want 1", n, err)
	}
}

func first(rdb redis.UniversalClient) string {
	if c, ok := rdb.(*redis.Client); ok {
		return c.Options().Addr
	}
	return rdb.(*redis.ClusterClient).Options().Addrs[0]
}

func TestStepsCallsBeforeTheRequest(t *testing.T) {
	t.Parallel()
	rdb, key := client(t)
	sent, calls := 0, 0
	var s *faults.Steps
	s = faults.NewSteps(rdb, 1, func() {
		if calls++; calls == 1 {
			s.Again()
		}
	})
	faults.After(rdb, func(r faults.Request) { sent += len(r.Commands) })
	for i, want := range []int{0, 1, 2, 2} {
		if err := rdb.Incr(t.Context(), key).Err(); err != nil || calls != want || sent != i+1 {
			t.Errorf("request %d: %d calls, %d sent, %v", i, calls, sent, err)
		}
		if s.Reached() != (i >= 2) {
			t.Errorf("request %d: reached %t", i, s.Reached())
		}
	}
}

func TestAroundReplacesRequests(t *testing.T) {
	t.Parallel()
	rdb, key := client(t)
	refused := errors.New("refused")
	faults.Around(rdb, func(_ context.Context, r faults.Request) error { return r.Fail(refused) })
	if err := rdb.Incr(t.Context(), key).Err(); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
}

// TestARequestCanBeSentInParts: a pipeline goes out in two parts, and each command has its
// own reply.
func TestARequestCanBeSentInParts(t *testing.T) {
	t.Parallel()
	rdb, key := client(t)
	sent := faults.Count(rdb)
	faults.Around(rdb, func(ctx context.Context, r faults.Request) error {
		if !r.Pipelined || r.Commands[0].Name() != "incr" { // a new connection has a pipeline of its own
			return r.Send(ctx)
		}
		first, second := r, r
		first.Commands, second.Commands = r.Commands[:1], r.Commands[1:]
		return errors.Join(first.Send(ctx), rdb.Incr(ctx, key).Err(), second.Send(ctx))
	})
	var one, three *redis.IntCmd
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		one, three = p.Incr(t.Context(), key), p.Incr(t.Context(), key)
		return nil
	})
	check.OK(t, err)
	check.Equal(t, "the first part", one.Val(), 1)
	check.Equal(t, "the second part", three.Val(), 3)
	check.Equal(t, "counted outside pipelines", sent.Of("get", "incr"), 1)
	sent.Forget()
	check.Equal(t, "counted since then", sent.Of("incr"), 0)
}

func TestAScriptIsKnownByItsText(t *testing.T) {
	t.Parallel()
	const text = "return 1"
	hash := redis.NewScript(text).Hash()
	for want, args := range map[bool][]any{true: {"evalsha", hash, 0}, false: {"get", text}} {
		check.Equal(t, "runs", faults.Runs(redis.NewCmd(t.Context(), args...), text), want)
	}
}
