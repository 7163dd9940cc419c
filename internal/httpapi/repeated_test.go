package httpapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// lostRequest is a request that its second copy refuses, although the first one took effect.
type lostRequest struct {
	script string
	// request is a method, a query and headers. line has the fields of a line.
	request []string
	line    string
	status  int
	code    string
	// between happens after the first copy: a delivery, or a change by another client.
	between func(d *door, id string)
}

func lostRequests() map[string]lostRequest {
	nothing := func(*door, string) {}
	gone := func(d *door, id string) { check.OK(d.t, d.tasks.Cancel(d.t.Context(), fixture.Orders, id)) }
	replaced := func(d *door, id string) {
		other := producer.Request{Topic: fixture.Orders, ID: id, When: producer.In(time.Hour)}
		_, err := d.tasks.Schedule(d.t.Context(), other)
		check.OK(d.t, err)
	}
	return map[string]lostRequest{
		"cancel": {"delete", []string{"DELETE", ""}, `"verb":"cancel"`, 404, "not_found", nothing},
		"move": {"reschedule", []string{"PATCH", "?in=2h"}, `"verb":"reschedule","in":"2h"`, 404,
			"not_found", gone},
		"replace": {"put", []string{"PUT", "?in=2h", "If-Match: *"}, `"verb":"schedule","in":"2h","if_present":true`, 412,
			"not_found", gone},
		"store": {"put", []string{"PUT", "?in=2h", "If-None-Match: *"}, `"verb":"schedule","in":"2h","if_absent":true`, 412,
			"exists", replaced},
	}
}

// TestAnAnswerAfterALostReplySaysMaybe: the request took effect, and its repeat is refused. The same
// request without a lost reply is answered with done "no".
func TestAnAnswerAfterALostReplySaysMaybe(t *testing.T) {
	t.Parallel()
	for name, r := range lostRequests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, lost := r.open(t, []string{"t-0"})
			for _, done := range []string{"maybe", "no"} {
				a := d.do(r.request[0], path("t-0")+r.request[1], "", r.request[2:]...)
				a.want(t, done, r.status, r.code)
				r.says(t, a.body, done)
			}
			check.Equal(t, "a reply was lost", lost(), true)
		})
		t.Run(name+" in a batch", func(t *testing.T) {
			t.Parallel()
			ids := []string{"t-0", "t-1", "t-2", "t-3", "t-4", "t-5"}
			d, lost := r.open(t, ids)
			var lines strings.Builder
			for _, id := range ids {
				fmt.Fprintf(&lines, `{"id":%q,%s}`+"\n", id, r.line)
			}
			for _, done := range []string{"maybe", "no"} {
				answers, err := d.batch(strings.NewReader(lines.String()))
				check.OK(t, err)
				check.Equal(t, "answers", len(answers), len(ids))
				for _, a := range answers {
					check.Equal(t, done, fmt.Sprint(a["status"], a["code"]), fmt.Sprint(r.status, r.code))
					r.says(t, a, done)
				}
			}
			check.Equal(t, "a reply was lost", lost(), true)
		})
	}
}

// says checks what an answer says about the effect of its request.
func (r lostRequest) says(t *testing.T, body map[string]any, done string) {
	t.Helper()
	check.Equal(t, "done", body["done"], any(done))
	check.Equal(t, "retry", body["retry"], any(false))
	detail := fmt.Sprint(body["detail"])
	check.Equal(t, "sent again in "+detail, strings.Contains(detail, "sent again"), done == "maybe")
}

// open starts a server whose library loses the first reply to the script, after it was executed.
// The tasks are stored, unless the request is to store them.
func (r lostRequest) open(t *testing.T, ids []string) (d *door, lost func() bool) {
	t.Helper()
	f := fixture.New(t)
	rdb := redis.NewUniversalClient(servertest.RedisOptions(f.Addr))
	t.Cleanup(func() { _ = rdb.Close() })
	tasks, err := producer.New(producer.Config{Redis: rdb, Prefix: f.Prefix, MaxPayload: 1000, Timeout: check.Hang})
	check.OK(t, err)
	t.Cleanup(func() { _ = tasks.Close() })
	d = openAt(t, f, func(c *Config) { c.Tasks, c.Batches = tasks, tasks })
	if r.code != "exists" {
		for _, id := range ids {
			d.do("PUT", path(id)+"?in=1h", "").want(t, "before", 200, nil)
		}
	}
	text, err := shard.Script(r.script)
	check.OK(t, err)
	check.OK(t, f.Client.ScriptLoad(t.Context(), text).Err())
	var seen atomic.Bool
	faults.Around(rdb, func(ctx context.Context, request faults.Request) error {
		runs := func(cmd redis.Cmder) bool { return faults.Runs(cmd, text) }
		if !slices.ContainsFunc(request.Commands, runs) || seen.Swap(true) {
			return request.Send(ctx)
		}
		if err := request.Send(ctx); err != nil {
			return err
		}
		for _, id := range ids {
			r.between(d, id)
		}
		return request.Fail(faults.ErrLost)
	})
	return d, seen.Load
}
