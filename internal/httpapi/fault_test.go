package httpapi

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestAFullRedisStoresNothing, and the answer says so and when to try again.
func TestAFullRedisStoresNothing(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--maxmemory-policy", "noeviction")
	d := openAt(t, fixture.At(t, server.Addr(), "duefleet"), nil)
	d.do("PUT", path("there")+"?in=1h", "x").want(t, "before", 200, nil)
	check.OK(t, d.redis.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	a := d.do("PUT", path("a")+"?in=1h", "x")
	a.want(t, "full", 503, "redis_full")
	check.Equal(t, "done", a.body["done"], any("no"))
	check.Equal(t, "retry", a.body["retry"], any(true))
	check.Equal(t, "Retry-After", a.header.Get("Retry-After"), "10")
	if _, there := d.stored("a"); there {
		t.Error("the task is stored")
	}
	d.do("DELETE", path("there"), "").want(t, "cancel", 200, nil)
}

// TestARedisThatHangs: a request that was sent may take effect, and the answer says so.
// The same request again stores the task once.
func TestARedisThatHangs(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	d := openAt(t, fixture.At(t, server.Addr(), "duefleet"), nil)
	d.do("PUT", path("there")+"?in=1h", "x").want(t, "before", 200, nil)
	check.OK(t, server.Pause())
	began := time.Now()
	a := d.do("PUT", path("a")+"?in=1h", "x")
	took := time.Since(began)
	check.OK(t, server.Resume())
	a.want(t, "hanging", 504, "uncertain")
	check.Equal(t, "done", a.body["done"], any("maybe"))
	check.Equal(t, "retry", a.body["retry"], any(true))
	if took < 2*time.Second {
		t.Errorf("took %s, less than the timeout", took)
	}
	d.do("PUT", path("a")+"?in=1h", "y").want(t, "again", 200, nil)
	s, _ := d.stored("a")
	check.Equal(t, "payload", string(s.Payload), "y")
}

// TestARedisThatDies: no answer claims what isn't so. Each task with 200 is stored, and no
// task is stored whose answers all say that nothing was done.
func TestARedisThatDies(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	d := openAt(t, fixture.At(t, server.Addr(), "duefleet"), nil)
	const senders, each = 8, 60
	var mu sync.Mutex
	failed := 0
	answers := map[string]answer{}
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for n := range each {
				id := fmt.Sprintf("%d-%d", s, n)
				a, err := d.try("PUT", path(id)+"?in=1h", nil)
				if err != nil {
					t.Errorf("%s: %v", id, err)
				}
				mu.Lock()
				answers[id] = a
				if a.status != http.StatusOK {
					failed++
				}
				kill, restart := len(answers) == senders*each/3, failed == senders
				mu.Unlock()
				if kill {
					err = server.Kill()
				} else if restart && a.status != http.StatusOK {
					err = server.Restart(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	codes := map[string]int{}
	for id, a := range answers {
		_, there := d.stored(id)
		code := fmt.Sprint(a.status, a.body["code"], a.body["done"])
		codes[code]++
		switch {
		case a.status == http.StatusOK && !there, a.body["done"] == "no" && there, a.status == 0:
			t.Errorf("%s: answer %s, stored %v", id, code, there)
		}
	}
	if codes["200 <nil> <nil>"] < senders*each/3 || failed < senders {
		t.Errorf("the fault hit no request: %v", codes)
	}
}

// TestTheShardCountChanges while clients schedule, move and cancel: they notice nothing,
// and each task is stored once.
func TestTheShardCountChanges(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	topic := d.redis.Orders()
	const tasks = 60
	for n := range tasks {
		d.do("PUT", path(fmt.Sprint("t-", n))+"?in=1h", "old").want(t, "schedule", 200, nil)
	}
	begun, err := topic.Begin(t.Context(), fixture.Placement(t, topic), 5)
	check.OK(t, err)
	check.Equal(t, "begun", begun, true)
	p := fixture.Placement(t, topic)
	for at := range p.Scanned() {
		_, err := topic.Shard(at).Fence(t.Context(), p)
		check.OK(t, err)
	}
	for n := range tasks {
		switch name := path(fmt.Sprint("t-", n)); n % 3 {
		case 0:
			d.do("PUT", name+"?in=2h", "new").want(t, "replace", 200, nil)
		case 1:
			d.do("PATCH", name+"?in=2h", "").want(t, "move", 200, nil)
		default:
			d.do("DELETE", name, "").want(t, "cancel", 200, nil)
		}
	}
	seen := map[string]int{}
	for at := range p.Scanned() {
		for cursor, first := uint64(0), true; first || cursor != 0; first = false {
			var ids []string
			ids, cursor, err = topic.Shard(at).Scan(t.Context(), cursor, 500)
			check.OK(t, err)
			for _, id := range ids {
				seen[id]++
			}
		}
	}
	for n := range tasks {
		id := fmt.Sprint("t-", n)
		want := 1
		if n%3 == 2 {
			want = 0
		}
		check.Equal(t, id+" stored", seen[id], want)
		if s, there := d.stored(id); there {
			check.Equal(t, id+" payload", string(s.Payload), map[bool]string{true: "new", false: "old"}[n%3 == 0])
		}
	}
}
