package httpapi

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// scheduling returns lines that schedule n tasks, t-0 and so on.
func scheduling(n int) string {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"verb":"schedule","id":"t-%d","in":"1h"}`+"\n", i)
	}
	return lines.String()
}

// agree compares answers to scheduling with what is stored: a task with 200 is stored, and
// one with done "no" isn't. It returns the numbers of answers by status, code and done.
func (d *door) agree(answers []map[string]any, ids func(n int) string) map[string]int {
	d.t.Helper()
	seen := map[string]int{}
	for n, a := range answers {
		check.Equal(d.t, "line", a["line"], any(float64(n+1)))
		_, there := d.stored(ids(n))
		what := fmt.Sprintf("%v %v %v", a["status"], a["code"], a["done"])
		seen[what]++
		if a["status"] == 200.0 && !there || a["done"] == "no" && there {
			d.t.Errorf("%s: answer %s, stored %v", ids(n), what, there)
		}
		if a["status"] != 200.0 && a["done"] != "no" && a["done"] != "maybe" {
			d.t.Errorf("%s: %v", ids(n), a)
		}
	}
	return seen
}

func numbered(n int) string { return fmt.Sprint("t-", n) }

// TestABatchOfAFullRedis, or of none: no line claims that its task is stored, and each says when
// to try again.
func TestABatchOfAFullRedis(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--maxmemory-policy", "noeviction")
	d := openAt(t, fixture.At(t, server.Addr(), "duefleet"), nil)
	check.OK(t, d.redis.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	answers, err := d.batch(strings.NewReader(scheduling(50)))
	check.OK(t, err)
	check.Equal(t, "answers", fmt.Sprint(d.agree(answers, numbered)), "map[503 redis_full no:50]")
	check.Equal(t, "after", fmt.Sprint(answers[0]["retry"], answers[0]["retry_after"]), "true 10")
	check.OK(t, server.Kill())
	check.Until(t, "the server to notice", func() bool { // an open connection may still take a request
		return d.do("PUT", path("a")+"?in=1h", "").body["code"] == "unavailable"
	})
	answers, err = d.batch(strings.NewReader(`{"verb":"schedule","id":"a","in":"1h"}` + "\n" + `{"verb":"cancel"}`))
	check.OK(t, err)
	away, bad := answers[0], answers[1]
	check.Equal(t, "Redis is away", fmt.Sprint(away["code"], away["retry"], away["retry_after"]), "unavailabletrue 1")
	check.Equal(t, "a bad line", fmt.Sprint(bad["retry"], bad["retry_after"]), "false <nil>")
}

// TestABatchOfAHangingRedis: lines that were sent are uncertain, and the same batch again
// stores each task once.
func TestABatchOfAHangingRedis(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	d := openAt(t, fixture.At(t, server.Addr(), "duefleet"), nil)
	d.do("PUT", path("there")+"?in=1h", "").want(t, "before", 200, nil)
	check.OK(t, server.Pause())
	answers, err := d.batch(strings.NewReader(scheduling(50)))
	check.OK(t, server.Resume())
	check.OK(t, err)
	seen := d.agree(answers, numbered)
	if len(answers) != 50 || seen["504 uncertain maybe"] == 0 || seen["200 <nil> <nil>"] > 0 {
		t.Errorf("answers %v", seen)
	}
	answers, err = d.batch(strings.NewReader(scheduling(50)))
	check.OK(t, err)
	check.Equal(t, "again", fmt.Sprint(d.agree(answers, numbered)), "map[200 <nil> <nil>:50]")
}

// TestABatchOfARedisThatDies in the middle and comes back: each line has an answer that
// agrees with what is stored.
func TestABatchOfARedisThatDies(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	d := openAt(t, fixture.At(t, server.Addr(), "duefleet"), nil)
	const part = 300
	body, lines := io.Pipe()
	id := func(n int) string { return fmt.Sprintf("%d-%d", n/part, n%part) }
	begun, killed, back := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer lines.Close()
		for p := range 4 {
			_, err := io.WriteString(lines, strings.ReplaceAll(scheduling(part), `"t-`, fmt.Sprintf(`"%d-`, p)))
			switch {
			case err != nil:
			case p == 1:
				<-begun
				err = server.Kill()
				close(killed)
			case p == 2:
				<-back
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	var answers []map[string]any
	restart := sync.OnceFunc(func() {
		<-killed
		if err := server.Restart(t.Context()); err != nil {
			t.Error(err)
		}
		close(back)
	})
	check.OK(t, d.stream(body, func(line map[string]any) {
		if answers = append(answers, line); len(answers) == 1 {
			close(begun)
		}
		if line["status"] != 200.0 {
			restart()
		}
	}))
	check.Until(t, "the library's connections", func() bool {
		_, err := d.tasks.Get(t.Context(), fixture.Orders, id(0))
		return !errors.Is(err, task.ErrUnavailable)
	})
	seen := d.agree(answers, id)
	check.Equal(t, "answers", len(answers), 4*part)
	if seen["200 <nil> <nil>"] == 0 || seen["200 <nil> <nil>"] == 4*part {
		t.Errorf("the fault hit no line, or all: %v", seen)
	}
}

// TestABatchDuringAChangeOfTheShardCount: its lines notice nothing.
func TestABatchDuringAChangeOfTheShardCount(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	topic := d.redis.Orders()
	answers, err := d.batch(strings.NewReader(scheduling(60)))
	check.OK(t, err)
	check.Equal(t, "before", d.agree(answers, numbered)["200 <nil> <nil>"], 60)
	begun, err := topic.Begin(t.Context(), fixture.Placement(t, topic), 5)
	check.OK(t, err)
	check.Equal(t, "begun", begun, true)
	p := fixture.Placement(t, topic)
	for at := range p.Scanned() {
		_, err := topic.Shard(at).Fence(t.Context(), p)
		check.OK(t, err)
	}
	var lines strings.Builder
	for n := range 60 {
		line := map[int]string{
			0: `{"verb":"schedule","id":"t-%d","in":"2h","payload":"new"}`,
			1: `{"verb":"reschedule","id":"t-%d","in":"2h"}`,
			2: `{"verb":"cancel","id":"t-%d"}`,
		}[n%3]
		fmt.Fprintf(&lines, line+"\n", n)
	}
	answers, err = d.batch(strings.NewReader(lines.String()))
	check.OK(t, err)
	for n, a := range answers {
		check.Equal(t, fmt.Sprint(a["verb"], " status"), a["status"], any(200.0))
		s, there := d.stored(numbered(n))
		check.Equal(t, numbered(n)+" stored", there, n%3 != 2)
		if n%3 == 0 {
			check.Equal(t, "payload", string(s.Payload), "new")
		}
		if there {
			check.Equal(t, "due", any(float64(s.Due.UnixMilli())), a["due_ms"])
		}
	}
	check.Equal(t, "answers", len(answers), 60)
}
