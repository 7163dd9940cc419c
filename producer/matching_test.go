package producer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// everyState stores a task of each state, with the state as its ID, and returns the due time
// of the waiting one. The retrying one is tried next an hour after that.
func (f *fleet) everyState(c *Client) time.Time {
	f.t.Helper()
	for _, id := range []string{"leased", "parked", "retrying"} {
		_, err := c.Schedule(f.t.Context(), request(id, Now()))
		check.OK(f.t, err)
	}
	for _, claimed := range f.claimAll() {
		if claimed.ID == "leased" {
			continue
		}
		back := shard.Release{Lease: shard.Lease{ID: claimed.ID, Token: claimed.Token}, Park: claimed.ID == "parked",
			Delay: 2 * time.Hour, Attempted: true, Reason: "no queue"}
		_, err := f.Shard(f.placement().New(claimed.ID)).Release(f.t.Context(), []shard.Release{back})
		check.OK(f.t, err)
	}
	due, err := c.Schedule(f.t.Context(), request("waiting", In(time.Hour)))
	check.OK(f.t, err)
	return due
}

// counts returns the numbers of met, changed and skipped tasks, if none failed.
func counts(m Matched) string {
	if m.Failed > 0 {
		return fmt.Sprint(m.Failed, " failed")
	}
	return fmt.Sprint(m.Met, m.Changed, m.Skipped)
}

// TestMatchingSelects: each method changes what is selected and may be changed, skips the
// rest, and a dry run counts the same and changes nothing.
func TestMatchingSelects(t *testing.T) {
	t.Parallel()
	shift := func(ctx context.Context, c *Client, m Matching) (Matched, error) {
		return c.ShiftMatching(ctx, m, time.Hour)
	}
	runNow := func(ctx context.Context, c *Client, m Matching) (Matched, error) { return c.RunNowMatching(ctx, m) }
	move := func(ctx context.Context, c *Client, m Matching) (Matched, error) {
		return c.RescheduleMatching(ctx, m, In(9*time.Hour))
	}
	cancel := func(ctx context.Context, c *Client, m Matching) (Matched, error) { return c.CancelMatching(ctx, m) }
	now := time.Now()
	for name, of := range map[string]struct {
		call    func(ctx context.Context, c *Client, m Matching) (Matched, error)
		m       Matching
		want    string // met, changed and skipped
		changed string
	}{
		"shift all":         {shift, Matching{All: true}, "4 2 2", "retrying waiting"},
		"run all":           {runNow, Matching{All: true}, "4 2 2", "retrying waiting"},
		"move all":          {move, Matching{All: true}, "4 2 2", "retrying waiting"},
		"cancel all":        {cancel, Matching{All: true}, "4 4 0", "leased parked retrying waiting"},
		"shift waiting":     {shift, Matching{State: task.Waiting}, "1 1 0", "waiting"},
		"run retrying":      {runNow, Matching{State: Retrying}, "1 1 0", "retrying"},
		"cancel parked":     {cancel, Matching{State: task.Parked}, "1 1 0", "parked"},
		"cancel leased":     {cancel, Matching{State: task.Leased}, "1 1 0", "leased"},
		"move a prefix":     {move, Matching{Prefix: "wai"}, "1 1 0", "waiting"},
		"move from":         {move, Matching{DueFrom: now.Add(30 * time.Minute)}, "1 1 0", "waiting"},
		"cancel to":         {cancel, Matching{DueTo: now.Add(30 * time.Minute)}, "3 3 0", "leased parked retrying"},
		"cancel none":       {cancel, Matching{Prefix: "none"}, "0 0 0", ""},
		"a state, a prefix": {cancel, Matching{State: task.Waiting, Prefix: "par"}, "0 0 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 3)
			c := f.client()
			f.everyState(c)
			before := f.snapshot(c)
			of.m.Topic, of.m.DryRun = orders, true
			got, err := of.call(f.t.Context(), c, of.m)
			check.OK(f.t, err)
			check.Equal(t, "a dry run", counts(got), of.want)
			check.Equal(t, "changed by a dry run", before.differs(f.snapshot(c)), "")
			of.m.DryRun = false
			got, err = of.call(f.t.Context(), c, of.m)
			check.OK(f.t, err)
			check.Equal(t, "counts", counts(got), of.want)
			check.Equal(t, "changed", before.differs(f.snapshot(c)), of.changed)
		})
	}
	check.Equal(t, "the state of admin", Retrying, admin.Retrying)
}

// snapshot maps each stored ID to its state and times.
type snapshot map[string]string

func (f *fleet) snapshot(c *Client) snapshot {
	f.t.Helper()
	all := snapshot{}
	for s, err := range c.List(f.t.Context(), orders, Filter{}) {
		check.OK(f.t, err)
		all[s.ID] = fmt.Sprint(s.State, s.Due.UnixMilli(), s.NextAttempt.UnixMilli(), s.Reason)
	}
	return all
}

// differs returns the IDs that have something else in other, or nothing.
func (s snapshot) differs(other snapshot) string {
	var ids []string
	for id, text := range s {
		if other[id] != text {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// TestMatchingGivesDueTimes: each method gives the due time that it says.
func TestMatchingGivesDueTimes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	c := f.client()
	due := f.everyState(c)
	all, want := Matching{Topic: orders, Prefix: "waiting"}, due.Add(-30*time.Minute)
	_, err := c.ShiftMatching(f.t.Context(), all, -30*time.Minute)
	check.OK(f.t, err)
	got, err := c.Get(f.t.Context(), orders, "waiting")
	check.OK(f.t, err)
	check.Equal(t, "shifted", got.Due, want)
	want = due.Add(48 * time.Hour)
	_, err = c.RescheduleMatching(f.t.Context(), all, At(want))
	check.OK(f.t, err)
	got, err = c.Get(f.t.Context(), orders, "waiting")
	check.OK(f.t, err)
	check.Equal(t, "moved", got.Due, want)
	_, err = c.RunNowMatching(f.t.Context(), Matching{Topic: orders, All: true})
	check.OK(f.t, err)
	for _, id := range []string{"waiting", "retrying"} {
		got, err = c.Get(f.t.Context(), orders, id)
		check.OK(f.t, err)
		check.Equal(t, id+" is due", got.NextAttempt.UnixMilli() <= f.now(), true)
	}
	check.Equal(t, "the retry keeps its reason", got.Reason, "no queue")
}

// TestMatchingRefuses: input that breaks a rule is an error, before Redis is asked.
func TestMatchingRefuses(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client()
	f.everyState(c)
	before := f.snapshot(c)
	shift := func(m Matching) error { _, err := c.ShiftMatching(f.t.Context(), m, time.Hour); return err }
	by := func(d time.Duration) error {
		_, err := c.ShiftMatching(f.t.Context(), Matching{Topic: orders, All: true}, d)
		return err
	}
	move := func(w When) error {
		_, err := c.RescheduleMatching(f.t.Context(), Matching{Topic: orders, All: true}, w)
		return err
	}
	cancel := func(m Matching) error { _, err := c.CancelMatching(f.t.Context(), m); return err }
	all := func(m Matching) Matching { m.Topic, m.All = orders, true; return m }
	for _, row := range []struct {
		err  error
		want string
	}{
		{cancel(Matching{Topic: orders}), "matching: must set Prefix, Group, State, DueFrom or DueTo, or All for all tasks"},
		{cancel(all(Matching{Prefix: "x"})), "all: must not be set together"},
		{cancel(Matching{All: true}), "topic: must be 1 to 64"},
		{shift(Matching{Topic: orders, State: task.Parked}), `state: must be among [waiting retrying], or`},
		{cancel(Matching{Topic: orders, State: "done"}), `state: must be among [waiting retrying leased`},
		{cancel(all(Matching{Limit: -1})), "limit: must not be negative; got -1"},
		{cancel(all(Matching{Rate: -1})), "rate: must not be negative; got -1"},
		{shift(all(Matching{Resume: "7"})), `resume: must be Matched.Resume of another call`},
		{by(0), "by: must be at least 1ms, and at most 100 years; got 0s"},
		{by(-999 * time.Microsecond), "by: must be at least 1ms, and at most 100 years; got -999µs"},
		{by(task.MaxAhead + 1), "by: must be at least 1ms, and at most 100 years; got 8766"},
		{move(When{}), "due: must be given"},
		{move(At(time.Now().AddDate(101, 0, 0))), "due: must be at most 100 years ahead; "},
		{move(In(1)), "due: must be at least 1ms"},
	} {
		is(t, row.err, task.ErrInvalid, row.want)
	}
	check.Equal(t, "changed", before.differs(f.snapshot(c)), "")
	is(t, cancel(Matching{Topic: "bills", All: true}), task.ErrUnknownTopic, "change topic bills: ")
	ctx, end := context.WithCancel(f.t.Context())
	end()
	_, err := c.CancelMatching(ctx, Matching{Topic: orders, All: true})
	is(t, err, task.ErrUnavailable)
}

// TestMatchingResumes: a shift that was interrupted goes on with its Resume, and no task is
// shifted twice.
func TestMatchingResumes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	c := f.client()
	const n = 350
	ids := f.scheduled(c, n, func(i int) string { return fmt.Sprint("o-", i) })
	was := map[string]time.Time{}
	for s, err := range c.List(f.t.Context(), orders, Filter{}) {
		check.OK(f.t, err)
		was[s.ID] = s.Due
	}
	ctx, interrupt := context.WithCancel(f.t.Context())
	var seen []int64
	resume := ""
	m := Matching{Topic: orders, Prefix: "o-", Progress: func(p Matched) {
		resume = p.Resume // a program keeps it somewhere
		if seen = append(seen, p.Changed); len(seen) == 3 {
			interrupt()
		}
	}}
	got, err := c.ShiftMatching(ctx, m, time.Hour)
	if !errors.Is(err, context.Canceled) || got.Changed != 100 || got.Resume != resume ||
		!slices.Equal(seen, []int64{0, 50, 100}) {
		t.Fatalf("%+v, %v; progress %v", got, err, seen)
	}
	m.Resume = resume
	got, err = c.ShiftMatching(f.t.Context(), m, time.Hour)
	check.OK(f.t, err)
	check.Equal(t, "the second call", counts(got), "350 250 100")
	for _, id := range ids {
		s, err := c.Get(f.t.Context(), orders, id)
		check.OK(f.t, err)
		check.Equal(t, id, s.Due, was[id].Add(time.Hour))
	}
}

// TestMatchingLimit: a call ends at the limit, and a rate makes its batches small.
func TestMatchingLimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	c := f.client()
	f.scheduled(c, 20, func(i int) string { return fmt.Sprint("o-", i) })
	var seen []int64
	got, err := c.CancelMatching(f.t.Context(), Matching{Topic: orders, All: true, Limit: 3, Rate: 10,
		Progress: func(p Matched) { seen = append(seen, p.Changed) }})
	check.OK(f.t, err)
	check.Equal(t, "changed", got.Changed, 3)
	check.Equal(t, "progress", fmt.Sprint(seen), "[0 1 2 3]")
	check.Equal(t, "left", len(f.listed(c, Filter{})), 17)
}

// TestAProducersRightsAreEnough: the user of deploy/redis/producer.acl lists topics and makes
// each change.
func TestAProducersRightsAreEnough(t *testing.T) {
	t.Parallel()
	server := servertest.RedisWithUsers(t, filepath.Join("..", "deploy", "redis"))
	fixture.At(t, server.Addr(), "duefleet").Serve(t, 3)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "duefleet-producer", Password: "producer"})
	t.Cleanup(func() { _ = rdb.Close() })
	c, err := New(Config{Redis: rdb})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if _, err := c.Schedule(t.Context(), request(id, In(time.Hour))); err != nil {
			t.Fatal(err)
		}
	}
	topics, err := c.Topics(t.Context())
	if err != nil || !slices.Equal(topics, []string{orders}) {
		t.Errorf("topics %q, %v", topics, err)
	}
	all := Matching{Topic: orders, DueFrom: time.Now()}
	for name, call := range map[string]func() (Matched, error){
		"shift":  func() (Matched, error) { return c.ShiftMatching(t.Context(), all, time.Hour) },
		"move":   func() (Matched, error) { return c.RescheduleMatching(t.Context(), all, In(3*time.Hour)) },
		"cancel": func() (Matched, error) { return c.CancelMatching(t.Context(), Matching{Topic: orders, Prefix: "a"}) },
	} {
		if got, err := call(); err != nil || got.Changed == 0 || got.Failed > 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := c.RunNowMatching(t.Context(), all); err != nil || got.Changed != 3 {
		t.Errorf("run now: %+v, %v", got, err)
	}
}
