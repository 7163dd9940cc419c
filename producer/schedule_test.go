package producer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestAScheduledTaskIsReadBackAsItWent(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	r := Request{
		Topic: orders, ID: "o-1", When: At(at), Payload: []byte("\x00\xffbytes"),
		ContentType: "application/json", Headers: map[string]string{"traceparent": "00-ab-cd-01", "k": ""},
	}
	before := f.now()
	due, err := c.Schedule(f.t.Context(), r)
	check.OK(f.t, err)
	after := f.now()
	check.Equal(t, "due", due, at)
	s, err := c.Get(f.t.Context(), orders, "o-1")
	check.OK(f.t, err)
	check.Equal(t, "state", s.State, task.Waiting)
	check.Equal(t, "due", s.Due, at)
	check.Equal(t, "next attempt", s.NextAttempt, at)
	check.Equal(t, "attempt", s.Attempt, 1)
	check.Equal(t, "payload", string(s.Payload), string(r.Payload))
	check.Equal(t, "content type", s.ContentType, "application/json")
	check.Equal(t, "headers", fmt.Sprint(s.Headers), fmt.Sprint(r.Headers))
	check.Equal(t, "topic and ID", s.Topic+" "+s.ID, "orders o-1")
	if scheduled := s.Scheduled.UnixMilli(); scheduled < before || scheduled > after {
		t.Errorf("scheduled at %d, want between %d and %d", scheduled, before, after)
	}
}

func TestIDsOfAnyCharactersAreKeptApart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	ids := []string{
		"a b", " ", "{orders:3}", "}{", "line\nbreak\r\n", "\x00", "🚀", "日本語", "é", "e\u0301", "a", "A",
		"*", "+inf", "-1", "1", "01", strings.Repeat("x", 255), strings.Repeat("é", 127) + "!", `"quoted"\`,
	}
	want := map[string]bool{}
	for _, id := range ids {
		_, err := c.Schedule(f.t.Context(), request(id, In(time.Hour)))
		check.OK(f.t, err)
		want[id] = true
	}
	f.inPlace(want)
	for _, id := range ids {
		s, err := c.Get(f.t.Context(), orders, id)
		check.OK(f.t, err)
		check.Equal(t, "payload", string(s.Payload), "payload of "+id)
		_, err = c.Reschedule(f.t.Context(), orders, id, In(2*time.Hour))
		check.OK(f.t, err)
		check.OK(f.t, c.Cancel(f.t.Context(), orders, id))
	}
	f.inPlace(nil)
}

func TestTheSameIDInAnotherTopicIsAnotherTask(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	_, err := f.store.Topic("other").Ensure(f.t.Context(), 2)
	check.OK(f.t, err)
	c := f.client()
	results := c.ScheduleMany(f.t.Context(), []Request{
		{Topic: orders, ID: "a", When: In(time.Hour), Payload: []byte("1")},
		{Topic: "other", ID: "a", When: In(time.Hour), Payload: []byte("2")},
	})
	for _, r := range results {
		check.OK(f.t, r.Err)
	}
	check.OK(f.t, c.Cancel(f.t.Context(), orders, "a"))
	s, err := c.Get(f.t.Context(), "other", "a")
	check.OK(f.t, err)
	check.Equal(t, "payload", string(s.Payload), "2")
}

func TestSchedulingAPendingIDReplacesIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	_, err := c.Schedule(f.t.Context(), request("a", Now()))
	check.OK(f.t, err)
	check.Equal(t, "claimed", len(f.claimAll()), 1)
	due, err := c.Schedule(f.t.Context(), Request{Topic: orders, ID: "a", When: In(time.Hour), Payload: []byte("second")})
	check.OK(f.t, err)
	s, err := c.Get(f.t.Context(), orders, "a")
	check.OK(f.t, err)
	check.Equal(t, "state", s.State, task.Waiting)
	check.Equal(t, "due", s.Due, due)
	check.Equal(t, "payload", string(s.Payload), "second")
}

func TestIfAbsentRefusesAPendingID(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	r := request("a", In(time.Hour))
	r.IfAbsent = true
	due, err := c.Schedule(f.t.Context(), r)
	check.OK(f.t, err)
	_, err = c.Schedule(f.t.Context(), r)
	is(t, err, task.ErrExists, "orders", `"a"`)
	s, err := c.Get(f.t.Context(), orders, "a")
	check.OK(f.t, err)
	check.Equal(t, "due", s.Due, due)
	check.OK(f.t, c.Cancel(f.t.Context(), orders, "a"))
	_, err = c.Schedule(f.t.Context(), r)
	check.OK(f.t, err)
}

func TestOfTwoRequestsForOneIDTheLaterWins(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	var requests []Request
	for round := range 3 {
		for i := range 50 {
			r := request(fmt.Sprint("o-", i), In(time.Duration(round+1)*time.Hour))
			r.Payload = fmt.Append(nil, round)
			requests = append(requests, r)
		}
	}
	absent := request("o-0", In(time.Hour))
	absent.IfAbsent = true
	results := f.client().ScheduleMany(f.t.Context(), append(requests, absent))
	is(t, results[150].Err, task.ErrExists)
	for i := range 50 {
		s, err := f.client().Get(f.t.Context(), orders, fmt.Sprint("o-", i))
		check.OK(f.t, err)
		check.Equal(t, "payload", string(s.Payload), "2")
		check.Equal(t, "due", s.Due, results[100+i].Due)
		check.OK(f.t, results[i].Err)
	}
}

func TestManyRequestsEachSucceedOrFailAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	c := f.client()
	_, err := c.Schedule(f.t.Context(), request("there", In(time.Hour)))
	check.OK(f.t, err)
	absent := request("there", In(time.Hour))
	absent.IfAbsent = true
	requests := []Request{
		request("good-1", In(time.Hour)),
		request("", In(time.Hour)),
		{Topic: "unknown", ID: "a", When: In(time.Hour)},
		absent,
		{Topic: orders, ID: "big", When: In(time.Hour), Payload: make([]byte, task.DefaultMaxPayload+1)},
		request("good-2", At(time.Now().AddDate(101, 0, 0))),
		request("good-3", In(-time.Hour)),
		{Topic: "bad topic", ID: "a"},
	}
	results := c.ScheduleMany(f.t.Context(), requests)
	kinds := []error{nil, task.ErrInvalid, task.ErrUnknownTopic, task.ErrExists, task.ErrInvalid, task.ErrInvalid, nil,
		task.ErrInvalid}
	for i, kind := range kinds {
		if !errors.Is(results[i].Err, kind) || results[i].Due.IsZero() != (kind != nil) {
			t.Errorf("request %d: got %v, want %v", i, results[i], kind)
		}
		if err := requests[i].Check(task.DefaultMaxPayload, time.Now()); errors.Is(err, task.ErrInvalid) != errors.Is(kind,
			task.ErrInvalid) {
			t.Errorf("request %d: checked %v, want %v", i, err, kind)
		}
	}
	f.inPlace(map[string]bool{"there": true, "good-1": true, "good-3": true})
}

func TestMoreTasksThanOneScriptTakesAreAllStored(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	requests, want := make([]Request, 2345), map[string]bool{}
	for i := range requests {
		requests[i] = request(fmt.Sprint("o-", i), In(time.Hour))
		want[requests[i].ID] = true
	}
	for i, r := range f.client().ScheduleMany(f.t.Context(), requests) {
		if r.Err != nil || r.Due.IsZero() {
			t.Fatalf("request %d: %v", i, r)
		}
	}
	f.inPlace(want)
	check.Equal(t, "results of nothing", len(f.client().ScheduleMany(f.t.Context(), nil)), 0)
}

func TestPayloadsKeepTheConfiguredLimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	small, err := New(Config{Redis: f.rdb, Prefix: f.prefix, MaxPayload: 10})
	check.OK(f.t, err)
	large, err := New(Config{Redis: f.rdb, Prefix: f.prefix, MaxPayload: task.MaxMaxPayload})
	check.OK(f.t, err)
	for _, v := range []struct {
		c    *Client
		size int
		kind error
	}{
		{f.client(), 0, nil},
		{f.client(), task.DefaultMaxPayload, nil},
		{f.client(), task.DefaultMaxPayload + 1, task.ErrInvalid},
		{small, 10, nil},
		{small, 11, task.ErrInvalid},
		{large, task.MaxMaxPayload, nil},
	} {
		id := fmt.Sprint(v.size)
		_, err := v.c.Schedule(f.t.Context(), Request{Topic: orders, ID: id, When: In(time.Hour), Payload: make([]byte,
			v.size)})
		if !errors.Is(err, v.kind) {
			t.Fatalf("payload of %d bytes: got %v, want %v", v.size, err, v.kind)
		}
		s, err := v.c.Get(f.t.Context(), orders, id)
		if v.kind != nil {
			is(t, err, task.ErrNotFound)
			continue
		}
		check.OK(f.t, err)
		check.Equal(t, "payload", len(s.Payload), v.size)
	}
}

func TestATopicThatNoScannerServesIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.client()
	_, err := c.Schedule(f.t.Context(), Request{Topic: "unknown", ID: "a", When: Now()})
	is(t, err, task.ErrUnknownTopic, "unknown")
	is(t, c.Cancel(f.t.Context(), "unknown", "a"), task.ErrUnknownTopic)
	_, err = c.Get(f.t.Context(), "unknown", "a")
	is(t, err, task.ErrUnknownTopic)
	_, err = c.Reschedule(f.t.Context(), "unknown", "a", Now())
	is(t, err, task.ErrUnknownTopic)
	_, err = f.store.Topic("unknown").Ensure(f.t.Context(), 2)
	check.OK(f.t, err)
	_, err = c.Schedule(f.t.Context(), Request{Topic: "unknown", ID: "a", When: Now()})
	check.OK(f.t, err)
}

func TestEveryCallChecksTopicAndID(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.client()
	for _, v := range [][2]string{{"", "a"}, {"my orders", "a"}, {orders, ""}, {orders, strings.Repeat("x", 256)},
		{orders, "\xff"}} {
		_, err := c.Schedule(f.t.Context(), Request{Topic: v[0], ID: v[1], When: Now()})
		is(t, err, task.ErrInvalid)
		_, err = c.Reschedule(f.t.Context(), v[0], v[1], Now())
		is(t, err, task.ErrInvalid)
		_, err = c.Get(f.t.Context(), v[0], v[1])
		is(t, err, task.ErrInvalid)
		is(t, c.Cancel(f.t.Context(), v[0], v[1]), task.ErrInvalid)
	}
	_, err := c.Reschedule(f.t.Context(), orders, "a", At(time.Now().AddDate(101, 0, 0)))
	is(t, err, task.ErrInvalid, "due")
	f.inPlace(nil)
}

func TestAConfigThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer rdb.Close()
	for name, cfg := range map[string]Config{
		"no Redis":             {},
		"two":                  {Redis: rdb, Options: &redis.UniversalOptions{}},
		"a negative limit":     {Redis: rdb, MaxPayload: -1},
		"a limit above 16 MiB": {Redis: rdb, MaxPayload: task.MaxMaxPayload + 1},
		"braces in the prefix": {Redis: rdb, Prefix: "{orders}"},
		"a URL for an address": {Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1",
			"redis://:SECRET@127.0.0.1:1"}}},
	} {
		if _, err := New(cfg); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: taken, or its password shown: %v", name, err)
		}
	}
	c, err := New(Config{Redis: rdb})
	check.OK(t, err)
	for _, r := range c.ScheduleMany(t.Context(), []Request{request("a", Now()), request("b", Now())}) {
		if r.Err == nil || !r.Due.IsZero() {
			t.Errorf("stored without a Redis: %v", r)
		}
	}
}

func TestCloseLeavesTheCallersRedisOpen(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	check.OK(f.t, f.client().Close())
	check.OK(f.t, f.rdb.Ping(f.t.Context()).Err())
	own, err := New(Config{Options: servertest.RedisOptions(f.addr), Prefix: f.prefix})
	check.OK(f.t, err)
	_, err = own.Schedule(f.t.Context(), request("a", In(time.Hour)))
	check.OK(f.t, err)
	check.OK(f.t, own.Close())
	if _, err := own.Get(f.t.Context(), orders, "a"); err == nil {
		t.Error("a closed client still works")
	}
}

func TestASchedulingThatTooFewReplicasHaveSaysSo(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c, err := New(Config{Redis: f.rdb, Prefix: f.prefix, MinReplicas: 5})
	check.OK(f.t, err)
	due, err := c.Schedule(f.t.Context(), request("a", In(time.Hour)))
	is(t, err, task.ErrReplicas, "of 5 replicas have the change", "if the master fails now")
	s, err := c.Get(f.t.Context(), orders, "a")
	check.OK(f.t, err)
	check.Equal(t, "due", s.Due, due)
	due, err = c.Reschedule(f.t.Context(), orders, "a", In(time.Minute))
	is(t, err, task.ErrReplicas, "of 5 replicas have the change")
	s, err = c.Get(f.t.Context(), orders, "a")
	check.OK(f.t, err)
	check.Equal(t, "due", s.Due, due)
	is(t, c.Cancel(f.t.Context(), orders, "a"), task.ErrReplicas, "of 5 replicas have the change")
	if _, err := New(Config{Redis: f.rdb, MinReplicas: 11}); err == nil {
		t.Error("11 replicas are accepted")
	}
}
