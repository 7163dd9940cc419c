package shard

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

func TestSettleRemovesATaskForGood(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a", "b")
	b := c.claimIDs("a", "b")
	check.Equal(t, "settled", c.settle(leases(b)...), 2)
	c.gone("a")
	c.gone("b")
	check.Equal(t, "settled the second time", c.settle(leases(b)...), 0)
	c.claimIDs()
}

func TestSettleTakesTokensOfSeveralClaims(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a", "c")
	first := c.claimIDs("a", "c").Tasks[0].Token
	c.put(task.Now(), "b", "d", "e")
	second := c.claimIDs("b", "d", "e").Tasks[0].Token
	lease := func(id, token string) Lease { return Lease{ID: id, Token: token} }
	crossed := []Lease{lease("a", second), lease("b", first), lease("c", second), lease("d", first)}
	check.Equal(t, "settled under each other's token", c.settle(crossed...), 0)
	check.Equal(t, "settled", c.settle(lease("a", first), lease("b", second), lease("c", first),
		lease("d", second), lease("e", first)), 4)
	for _, id := range []string{"a", "b", "c", "d"} {
		c.gone(id)
	}
	c.in("e", task.Leased)
}

// TestATokenIsANumber: versions of Redis write the same score in different ways.
func TestATokenIsANumber(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	token := c.claimIDs("a").Tasks[0].Token
	score, err := strconv.ParseFloat(token, 64)
	check.OK(c.t, err)
	other := strconv.FormatFloat(score, 'e', -1, 64)
	if other == token {
		t.Fatalf("%s is written in one way only", token)
	}
	check.Equal(t, "settled", c.settle(Lease{ID: "a", Token: other}), 1)
	c.gone("a")
}

func TestSettleTakesMoreThanOneScriptDoes(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	l := leases(c.claimIDs("a"))[0]
	many := make([]Lease, 2*MaxBatch+1)
	for i := range many {
		many[i] = Lease{ID: "nothing", Token: l.Token}
	}
	many[2*MaxBatch] = l
	check.Equal(t, "settled", c.settle(many...), 1)
	check.Equal(t, "settled of none", c.settle(), 0)
}

// TestAnOldTokenTouchesNothing tries a claim's token on the task of the same ID
// that came after it.
func TestAnOldTokenTouchesNothing(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(c *sandbox){
		"cancelled and scheduled again": func(c *sandbox) { c.delete("a"); c.put(task.Now(), "a") },
		"replaced":                      func(c *sandbox) { c.put(task.Now(), "a") },
		"rescheduled": func(c *sandbox) {
			_, err := c.Shard(0).Reschedule(c.t.Context(), c.p, c.notAfter(), Move{Op: NewOp(), ID: "a", When: task.Now()})
			check.OK(c.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSandbox(t, 1)
			c.put(task.Now(), "a")
			old := leases(c.claimIDs("a"))[0]
			replace(c)
			untouched := func(state task.State) {
				check.Equal(t, "settled", c.settle(old), 0)
				check.Equal(t, "released", c.release(Release{Lease: old, Attempted: true, Redelivered: true, Reason: "old"}), 0)
				check.Equal(t, "parked", c.release(Release{Lease: old, Park: true}), 0)
				s := c.in("a", state)
				check.Equal(t, "attempt", s.Attempt, 1)
				check.Equal(t, "redelivered", s.Redelivered, false)
				check.Equal(t, "reason", s.Reason, "")
			}
			untouched(task.Waiting)
			b := c.claimIDs("a")
			untouched(task.Leased)
			check.Equal(t, "settled under the new token", c.settle(leases(b)...), 1)
		})
	}
}

func TestTwoClaimsOfOneMillisecondHaveTheirOwnTokens(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	seen := map[string]bool{}
	check.Until(t, "two claims fall into one millisecond", func() bool {
		var ids []string
		for range 50 {
			ids = append(ids, string(NewOp()))
		}
		c.put(task.Now(), ids...)
		met, last := false, int64(0)
		for _, b := range c.claimEach(len(ids)) {
			if seen[b.token] {
				t.Fatalf("token %s was given twice", b.token)
			}
			seen[b.token] = true
			met, last = met || b.at == last, b.at
		}
		return met
	})
}

// stamped is a claim's token and its Redis ms.
type stamped struct {
	token string
	at    int64
}

// claimEach claims n tasks one by one, in commands that are sent together.
func (c *sandbox) claimEach(n int) (claims []stamped) {
	c.t.Helper()
	pipe := c.rdb.Pipeline()
	cmds := make([]*redis.Cmd, n)
	for i := range cmds {
		claim := luascript.Call{
			Script: "claim",
			Keys:   []string{c.Shard(0).due(), c.Shard(0).tasks(), c.Shard(0).fence(), c.Shard(0).memory("w")},
			Args:   []any{string(NewOp()), 1, time.Minute.Milliseconds(), claimBudget, c.notAfter(), 0, 0},
		}
		cmds[i] = c.command(claim)
		_ = pipe.Process(c.t.Context(), cmds[i])
	}
	_, err := pipe.Exec(c.t.Context())
	check.OK(c.t, err)
	for _, cmd := range cmds {
		reply, err := cmd.Slice()
		check.OK(c.t, err)
		check.Equal(c.t, "length of an answer with one task", len(reply), claimHead+2)
		token, _ := reply[0].(string)
		micros, _ := reply[1].(int64)
		claims = append(claims, stamped{token, micros / 1000})
	}
	return claims
}

// TestTokensOfDifferentLeasesNeverMeet leases a task in every millisecond in
// which the leases under test may end, under the token of 1023 claims ago. After that many
// claims the fraction of a token repeats.
func TestTokensOfDifferentLeasesNeverMeet(t *testing.T) {
	t.Parallel()
	check.Until(t, "both leases end where others do", func() bool { return leasesAmongOthers(newSandbox(t, 1)) })
}

// leasesAmongOthers reports whether the leases ended in a millisecond that was
// taken.
func leasesAmongOthers(c *sandbox) bool {
	t := c.t
	first := c.now() + time.Minute.Milliseconds()
	taken := make([]redis.Z, 20_000)
	for i := range taken {
		end := float64(first + int64(i))
		taken[i] = redis.Z{Score: -(end + 2.0/1024), Member: fmt.Sprint("taken-", i)}
	}
	check.OK(c.t, c.rdb.ZAdd(c.t.Context(), c.Shard(0).due(), taken...).Err())
	come := func() { check.OK(c.t, c.rdb.HSet(c.t.Context(), c.Shard(0).fence(), "claims", 1023).Err()) }
	c.put(task.In(time.Hour), "later")
	c.put(task.Now(), "now")

	come()
	claim := Claim{Claimant: "w", Request: "1", Limit: 10, Lease: time.Minute}
	last := int64(0)
	for range 2 { // the second is answered with all that is under the token
		b := c.ask(claim)
		if last == 0 {
			last = b.Now.UnixMilli() + time.Minute.Milliseconds()
		}
		c.sameIDs(b, "now")
		check.Equal(t, "bad", len(b.Bad), 0)
	}
	come()
	l := Export{Claimant: "m", Request: "1", Lease: time.Minute, IDs: []string{"later"}}
	for range 2 {
		export, err := c.Shard(0).Export(c.t.Context(), c.p, l)
		check.OK(c.t, err)
		check.Equal(t, "exported", len(export.Tasks), 1)
		under := c.rdb.ZCount(c.t.Context(), c.Shard(0).due(), export.Token, export.Token).Val()
		check.Equal(t, "tasks under the export's token", under, 1)
		last = max(last, export.Deadline)
	}
	return last < first+int64(len(taken))
}

func TestReleaseMakesATaskDueAtOnceInItsOldPlace(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.put(task.Now(), "a")[0]
	b := c.claimIDs("a")
	r := Release{Lease: leases(b)[0], Redelivered: true}
	check.Equal(t, "released", c.release(r), 1)
	s := c.in("a", task.Waiting)
	check.Equal(t, "next", s.Next.UnixMilli(), due)
	check.Equal(t, "attempt", s.Attempt, 1)
	check.Equal(t, "redelivered", s.Redelivered, true)
	check.Equal(t, "released the second time", c.release(r), 0)
	got := c.claimIDs("a").Tasks[0]
	check.Equal(t, "redelivered", got.Redelivered, true)
	check.Equal(t, "payload", string(got.Payload), "payload of a")
}

func TestReleaseWithADelayComesLaterAndKeepsItsDueTime(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.put(task.Now(), "a")[0]
	before := c.now()
	check.Equal(t, "released", c.release(Release{Lease: leases(c.claimIDs("a"))[0], Delay: time.Hour}), 1)
	s := c.in("a", task.Waiting)
	check.Equal(t, "due", s.Due.UnixMilli(), due)
	if next := s.Next.UnixMilli() - time.Hour.Milliseconds(); next < before || next > c.now() {
		t.Errorf("to be tried at %s, want in an hour", s.Next)
	}
	check.Equal(t, "next", c.claimIDs().Next.UnixMilli(), s.Next.UnixMilli())
}

func TestReleaseRoundsADelayUpToAMillisecond(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.put(task.Now(), "a")[0]
	b := c.claimIDs("a")
	check.Equal(t, "released", c.release(Release{Lease: leases(b)[0], Delay: time.Microsecond}), 1)
	if next := c.read("a").Next.UnixMilli(); next <= due || next <= b.Now.UnixMilli() {
		t.Errorf("to be tried at %d, want after %d", next, b.Now.UnixMilli())
	}
}

func TestReleaseCountsOnlyTheAttemptsItIsToldOf(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	for i, want := range []int{1, 2, 2, 3} {
		b := c.claimIDs("a")
		check.Equal(t, "attempt", b.Tasks[0].Attempt, want)
		r := Release{Lease: leases(b)[0], Attempted: i%2 == 0}
		check.Equal(t, "released", c.release(r), 1)
		check.Equal(t, "released the second time", c.release(r), 0)
	}
	check.Equal(t, "attempt", c.read("a").Attempt, 3)
}

func TestReleaseKeepsTheLastReason(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	long := strings.Repeat("r", maxReason)
	for _, v := range []struct{ reason, want string }{
		{"first", "first"}, {"", "first"}, {"second – ü", "second – ü"}, {long + "more", long}, {"s", "s"},
	} {
		c.release(Release{Lease: leases(c.claimIDs("a"))[0], Reason: v.reason})
		check.Equal(t, "reason", c.read("a").Reason, v.want)
		check.Equal(t, "payload", string(c.read("a").Payload), "payload of a")
	}
}

func TestParkSetsATaskAsideUntilItIsReplayed(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	due := c.put(task.Now(), "a")[0]
	b := c.claimIDs("a")
	r := Release{Lease: leases(b)[0], Park: true, Attempted: true, Redelivered: true, Reason: "NO_ROUTE"}
	check.Equal(t, "parked", c.release(r), 1)
	check.Equal(t, "parked the second time", c.release(r), 0)
	s := c.in("a", task.Parked)
	check.Equal(t, "next is zero", s.Next.IsZero(), true)
	check.Equal(t, "reason", s.Reason, "NO_ROUTE")
	check.Equal(t, "attempt", s.Attempt, 2)
	c.claimIDs()

	before := c.now()
	n, err := c.Shard(0).Replay(c.t.Context(), "a", "nothing")
	check.OK(c.t, err)
	check.Equal(t, "replayed", n, 1)
	n, err = c.Shard(0).Replay(c.t.Context(), "a")
	check.OK(c.t, err)
	check.Equal(t, "replayed the second time", n, 0)
	s = c.in("a", task.Waiting)
	check.Equal(t, "attempt", s.Attempt, 1)
	check.Equal(t, "reason", s.Reason, "")
	check.Equal(t, "redelivered", s.Redelivered, true)
	check.Equal(t, "due", s.Due.UnixMilli(), due)
	if next := s.Next.UnixMilli(); next < before || next > c.now() {
		t.Errorf("replayed to %d, want now (%d)", next, before)
	}
	c.claimIDs("a")
}

func TestReplayAndPurgeTouchOnlyParkedTasks(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "leased")
	c.claimIDs("leased")
	c.put(task.In(time.Hour), "waiting")
	for _, id := range []string{"leased", "waiting", "nothing"} {
		n, err := c.Shard(0).Replay(c.t.Context(), id)
		check.OK(c.t, err)
		check.Equal(t, "replayed "+id, n, 0)
		n, err = c.Shard(0).PurgeParked(c.t.Context(), id)
		check.OK(c.t, err)
		check.Equal(t, "purged "+id, n, 0)
	}
	c.in("leased", task.Leased)
	c.in("waiting", task.Waiting)
}

func TestPurgeRemovesAParkedTaskForGood(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "a")
	c.park("a", "given up")
	for _, want := range []int{1, 0} {
		n, err := c.Shard(0).PurgeParked(c.t.Context(), "a")
		check.OK(c.t, err)
		check.Equal(t, "purged", n, want)
	}
	c.gone("a")
}

func TestParkedTasksAreListedInPages(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	for _, id := range []string{"c", "a", "b"} {
		c.put(task.Now(), id)
		c.park(id, "reason of "+id)
	}
	c.put(task.Now(), "waiting")
	var ids []string
	list := c.Shard(0).Parked()
	for list.tasks = 2; ; {
		page, err := list.Next(c.t.Context())
		check.OK(c.t, err)
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			ids = append(ids, r.ID)
			check.Equal(t, "reason", r.Reason, "reason of "+r.ID)
		}
	}
	check.Equal(t, "parked", strings.Join(ids, " "), "a b c")
}
