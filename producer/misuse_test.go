package producer

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestMisuseOfConfig: New names the wrong field and says what is valid.
func TestMisuseOfConfig(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	addrs := func(all ...string) Config { return Config{Options: &redis.UniversalOptions{Addrs: all}} }
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "duefleet_producer_calls_total"}))
	misuses := map[string]check.Refusal{}
	for name, row := range map[string]struct {
		cfg  Config
		want string
	}{
		"nothing": {Config{}, "neither Config.Redis nor Config.Options is given; give one of them"},
		"both": {
			Config{Redis: rdb, Options: addrs("127.0.0.1:1").Options},
			"both Config.Redis and Config.Options are given; give one of them",
		},
		"a nil client": {
			Config{Redis: (*redis.Client)(nil)},
			"Config.Redis is a nil *redis.Client; give a client, or Config.Options alone",
		},
		"no address":       {addrs(), "Config.Options.Addrs must name a Redis, as in 127.0.0.1:6379"},
		"an empty address": {addrs(""), "Config.Options.Addrs[0] must be host:port, as in 127.0.0.1:6379; it is empty"},
		"a URL": {
			addrs("h:1", "redis://u:secret@h:1"),
			"Config.Options.Addrs[1] must be host:port, as in 127.0.0.1:6379; it is a URL: user, " +
				"password and TLS are settings of their own",
		},
		"no port": {
			addrs("localhost"),
			"Config.Options.Addrs[0] must be host:port, as in 127.0.0.1:6379; it has no port",
		},
		"IPv6": {
			addrs("::1:6379"),
			"Config.Options.Addrs[0] must be host:port, as in 127.0.0.1:6379; it has too many colons",
		},
		"braces": {
			Config{Redis: rdb, Prefix: "{a}"},
			`prefix "{a}" must not have braces, which change a key's slot in a Redis Cluster`,
		},
		"a negative limit": {Config{Redis: rdb, MaxPayload: -1}, "Config.MaxPayload must be 1 to 16777216 bytes; got -1"},
		"a large limit": {
			Config{Redis: rdb, MaxPayload: 16<<20 + 1},
			"Config.MaxPayload must be 1 to 16777216 bytes; got 16777217",
		},
		"a negative timeout": {Config{Redis: rdb, Timeout: -time.Second}, "Config.Timeout must not be negative; got -1s"},
		"negative replicas":  {Config{Redis: rdb, MinReplicas: -1}, "MinReplicas must be 0 to 10; got -1"},
		"many replicas":      {Config{Redis: rdb, MinReplicas: 11}, "MinReplicas must be 0 to 10; got 11"},
	} {
		_, err := New(row.cfg)
		misuses[name] = check.Refusal{err, "producer: " + row.want}
	}
	check.Refusals(t, misuses)
	const inUse = "producer: register metrics: a previously registered descriptor with the same fully-qualified name"
	if _, err := New(Config{Redis: rdb, Registerer: taken}); err == nil || !strings.HasPrefix(err.Error(), inUse) {
		t.Errorf("a registerer in use: got %v", err)
	}
}

// TestMisuseOfSchedule: the error names the broken rule and says what is valid.
func TestMisuseOfSchedule(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	now := time.UnixMilli(f.now())
	misuses := map[string]check.Refusal{}
	for name, row := range map[string]struct {
		change func(r *Request)
		want   string
	}{
		"no topic": {func(r *Request) { r.Topic = "" }, "topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 0 bytes"},
		"a space": {
			func(r *Request) { r.Topic = "my orders" },
			"topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 9 bytes with ' ' at byte 2",
		},
		"a long topic": {
			func(r *Request) { r.Topic = strings.Repeat("t", 65) },
			"topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 65 bytes",
		},
		"no ID": {func(r *Request) { r.ID = "" }, "id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes"},
		"a long ID": {
			func(r *Request) { r.ID = strings.Repeat("i", 256) },
			"id: must be 1 to 255 bytes of valid UTF-8; got 256 bytes",
		},
		"bytes as ID": {
			func(r *Request) { r.ID = "\xff" },
			"id: must be 1 to 255 bytes of valid UTF-8; got 1 byte that are not valid UTF-8",
		},
		"no time": {func(r *Request) { r.When = When{} }, "due: must be given; Now() is due now; got no time"},
		"a zero time": {
			func(r *Request) { r.When = At(time.Time{}) },
			"due: must be given; Now() is due now; got the zero time.Time",
		},
		"seconds": {
			func(r *Request) { r.When = At(time.UnixMilli(1796119200)) },
			"due: looks like Unix seconds that were taken for milliseconds; want " +
				"time.Unix(1796119200, 0); got 1970-01-21T18:55:19Z",
		},
		"a far time": {
			func(r *Request) { r.When = At(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)) },
			"due: must be at most 100 years ahead; got 2200-01-01T00:00:00Z",
		},
		"a large payload": {
			func(r *Request) { r.Payload = make([]byte, 256<<10+1) },
			"payload: must be at most 262144 bytes (max_payload); got 262145 bytes",
		},
		"a long type": {
			func(r *Request) { r.ContentType = strings.Repeat("c", 256) },
			"content_type: must be 0 to 255 bytes of valid UTF-8; got 256 bytes",
		},
		"33 headers": {func(r *Request) { r.Headers = many(33, 0) }, "headers: must be at most 32; got 33 headers"},
		"large headers": {
			func(r *Request) { r.Headers = many(1, task.MaxHeaderBytes) },
			"headers: must be at most 65536 bytes of keys and values together; got 65537 bytes",
		},
		"an empty header": {
			func(r *Request) { r.Headers = map[string]string{"": "v"} },
			"header key: must be 1 to 128 bytes of valid UTF-8; got 0 bytes",
		},
		"a reserved header": {
			func(r *Request) { r.Headers = map[string]string{"x-duefleet-due": "1"} },
			`header key: must not begin with x-duefleet-; got "x-duefleet-due" (14 bytes)`,
		},
		"CC": {
			func(r *Request) { r.Headers = map[string]string{"CC": "q"} },
			`header key: must not be CC or BCC, which RabbitMQ routes by; got "CC" (2 bytes)`,
		},
		"bytes as header": {
			func(r *Request) { r.Headers = map[string]string{"k": "\xff"} },
			"header k: must be valid UTF-8; got 1 byte that are not",
		},
		"a long key": {
			func(r *Request) { r.Options.RoutingKey = strings.Repeat("k", 256) },
			"routing_key: must be 0 to 255 bytes of valid UTF-8; got 256 bytes",
		},
		"a short expiry": {
			func(r *Request) { r.Options.Expiration = time.Microsecond },
			"expiration: must be 1ms to 1193h2m47.295s; got 1µs",
		},
		"a negative expiry": {
			func(r *Request) { r.Options.Expiration = -time.Second },
			"expiration: must be 1ms to 1193h2m47.295s; got -1s",
		},
		"a reply to nobody": {
			func(r *Request) { r.Options.ReplyTo = "amq.rabbitmq.reply-to" },
			"reply_to: must be a queue that others can reach; got amq.rabbitmq.reply-to",
		},
	} {
		r := request("a", In(time.Hour))
		row.change(&r)
		_, err := c.Schedule(f.t.Context(), r)
		misuses[name] = check.Refusal{err, row.want}
		misuses[name+", in ScheduleMany"] = check.Refusal{c.ScheduleMany(f.t.Context(), []Request{r})[0].Err, row.want}
		misuses[name+", in Check"] = check.Refusal{r.Check(task.DefaultMaxPayload, now), row.want}
	}
	check.Refusals(t, misuses)
	f.inPlace(nil)
	r := request("a", In(time.Hour))
	check.Refusals(t, map[string]check.Refusal{
		"no JSON": {r.SetJSON(math.NaN()), "encode the payload: json: unsupported value: NaN"},
		"a func":  {r.SetJSON(func() {}), "encode the payload: json: unsupported type: func()"},
	})
	check.Equal(t, "the payload after SetJSON failed", string(r.Payload), "payload of a")
}

// TestMisuseOfCalls: an error names the task. If a call comes at the wrong time, it also
// says what to do first.
func TestMisuseOfCalls(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	ctx := f.t.Context()
	over, end := context.WithCancel(ctx)
	end()
	closed, err := New(Config{Options: fixture.Options(f.addr), Prefix: f.prefix})
	check.OK(f.t, err)
	check.OK(f.t, closed.Close())
	second := func(_ time.Time, err error) error { return err }
	check.OK(f.t, second(c.Schedule(ctx, request("there", In(time.Hour)))))
	absent := request("there", In(time.Hour))
	absent.IfAbsent = true
	got := func(_ Stored, err error) error { return err }
	const (
		unknown = "unknown topic nobodys: no scanner serves it under this Redis prefix; add it where " +
			"running scanners take their topics from: their file, or Consul by `scanner topic create`"
		asked  = "ask Redis for the time: "
		placed = "read placement of topic orders: "
		ended  = "redis: client is closed: the Client or Config.Redis was closed; close them after the last call"
	)
	check.Refusals(t, map[string]check.Refusal{
		"a task that is there": {
			second(c.Schedule(ctx, absent)),
			`topic orders, ID "there": a task of this ID exists already`,
		},
		"an unknown topic":  {second(c.Schedule(ctx, Request{Topic: "nobodys", ID: "a", When: Now()})), unknown},
		"cancel nothing":    {c.Cancel(ctx, orders, "none"), `topic orders, ID "none": no such task`},
		"cancel no ID":      {c.Cancel(ctx, orders, ""), "id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes"},
		"cancel no topic":   {c.Cancel(ctx, "", "a"), "topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 0 bytes"},
		"cancel in unknown": {c.Cancel(ctx, "nobodys", "a"), `topic nobodys, ID "a": ` + unknown},
		"reschedule nothing": {
			second(c.Reschedule(ctx, orders, "none", Now())),
			`topic orders, ID "none": no such task`,
		},
		"reschedule without time": {
			second(c.Reschedule(ctx, orders, "there", When{})),
			"due: must be given; Now() is due now; got no time",
		},
		"reschedule with seconds": {
			second(c.Reschedule(ctx, orders, "there", At(time.UnixMilli(1796119200)))),
			"due: looks like Unix seconds that were taken for milliseconds; want " +
				"time.Unix(1796119200, 0); got 1970-01-21T18:55:19Z",
		},
		"get nothing": {got(c.Get(ctx, orders, "none")), `topic orders, ID "none": no such task`},
		"get no ID":   {got(c.Get(ctx, orders, "")), "id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes"},
		"schedule when it is over": {
			second(c.Schedule(over, request("a", Now()))),
			"Redis is not available, nothing was done: context canceled",
		},
		"cancel when it is over": {
			c.Cancel(over, orders, "there"),
			`topic orders, ID "there": Redis is not available, nothing was done: context canceled`,
		},
		"schedule when closed": {second(closed.Schedule(ctx, request("a", Now()))), asked + ended},
		"many when closed":     {closed.ScheduleMany(ctx, []Request{request("a", Now())})[0].Err, asked + ended},
		"cancel when closed":   {closed.Cancel(ctx, orders, "there"), `topic orders, ID "there": ` + placed + ended},
		"get when closed":      {got(closed.Get(ctx, orders, "there")), `topic orders, ID "there": ` + placed + ended},
		"IDs of a bad topic": {
			firstError(ctx, c, "a b"),
			"topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 3 bytes with ' ' at byte 1",
		},
		"IDs of an unknown topic": {firstError(ctx, c, "nobodys"), unknown},
	})
	results := c.ScheduleMany(ctx, []Request{request("twice", In(time.Hour)), request("twice", In(2*time.Hour))})
	if results[0].Err != nil || results[1].Err != nil || !results[1].Due.After(results[0].Due) {
		t.Errorf("an ID that is twice in a batch: %+v", results)
	}
	absent.ID = "twice if absent"
	check.Refusals(t, map[string]check.Refusal{
		"twice if absent": {
			c.ScheduleMany(ctx, []Request{absent, absent})[1].Err,
			`topic orders, ID "twice if absent": a task of this ID exists already`,
		},
	})
}

func firstError(ctx context.Context, c *Client, topic string) error {
	for _, err := range c.IDs(ctx, topic, "") {
		return err
	}
	return nil
}

// TestMisuseOfRedis: the error names a key that another program has written.
func TestMisuseOfRedis(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.informed()
	check.OK(f.t, f.rdb.Set(f.t.Context(), f.prefix+":due:{orders:0}", "mine", 0).Err())
	_, scheduled := c.Schedule(f.t.Context(), request("a", Now()))
	many := c.ScheduleMany(f.t.Context(), []Request{request("a", Now())})
	const put = "put to shard 0 of topic orders: WRONGTYPE "
	for _, row := range []check.Refusal{
		{scheduled, put}, {many[0].Err, put},
		{c.Cancel(f.t.Context(), orders, "a"), `topic orders, ID "a": delete from shard 0 of topic orders: WRONGTYPE `},
	} {
		const advice = ": another program writes under this prefix of this Redis; give it another"
		got := fmt.Sprint(row.Err)
		if !strings.HasPrefix(got, row.Want) || !strings.HasSuffix(got, advice) {
			t.Errorf("got %s, want %s...%s", got, row.Want, advice)
		}
	}
}
