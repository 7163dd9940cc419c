package console

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// copies stores copies of a task in its shard. KEYS are the shard's sorted set and its records.
// ARGV are the ID of the task, the due time (ms) of o-0000000, and the IDs of the copies.
const copies = `
local record = redis.call('HGET', KEYS[2], ARGV[1])
local head, tail = string.sub(record, 1, 1), string.sub(record, 8)
local scores, records = {}, {}
for i = 3, #ARGV do
	local due = ARGV[2] + 100 * tonumber(string.sub(ARGV[i], 3))
	scores[#scores + 1], scores[#scores + 2] = due, ARGV[i]
	records[#records + 1], records[#records + 2] = ARGV[i], head .. struct.pack('>I6', due) .. tail
end
redis.call('ZADD', KEYS[1], unpack(scores))
redis.call('HSET', KEYS[2], unpack(records))
return 1`

// storeMany stores n tasks of the topic orders, o-0000000 and so on, each due 100 ms after the
// one before it. In each shard a producer's call stores the first one. A script copies it for
// the others, because a million tasks would take a producer too long.
func storeMany(t *testing.T, r *fixture.Redis, p shard.Placement, n int, first time.Time) {
	t.Helper()
	const batch = 2000
	waiting := map[int][]any{}
	store := func(at int) {
		tag := fmt.Sprintf("{orders:%d}", at)
		keys := []string{r.Prefix + ":due:" + tag, r.Prefix + ":task:" + tag}
		check.OK(t, r.Client.Eval(t.Context(), copies, keys, waiting[at]...).Err())
		waiting[at] = waiting[at][:2]
	}
	for i := range n {
		id := fmt.Sprintf("o-%07d", i)
		at := p.New(id)
		if waiting[at] == nil {
			fixture.Store(t, r.Orders(), fixture.Entries(task.At(first.Add(time.Duration(i)*100*time.Millisecond)),
				[]byte("\x00a"), id)...)
			waiting[at] = []any{id, strconv.FormatInt(first.UnixMilli(), 10)}
			continue
		}
		if waiting[at] = append(waiting[at], id); len(waiting[at]) == batch {
			store(at)
		}
	}
	for at := range waiting {
		if len(waiting[at]) > 2 {
			store(at)
		}
	}
}

// found returns the IDs of the tasks in the list.
func (b *browser) found() string {
	b.t.Helper()
	return b.eval(`[...document.querySelectorAll("tbody [data-row]")].map(r => r.dataset.row).join(" ")`)
}

// TestOneOfAMillion: the form of the page finds one task of a million by its whole ID, its
// begin, its state, or its due time.
func TestOneOfAMillion(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t, "--appendonly", "no", "--save", "")
	r := fixture.At(t, server.Addr(), "p")
	topic, p := r.Serve(t, 4)
	park(t, topic, "refused", "parked")
	first := time.Now().Truncate(time.Second).Add(time.Hour + 50*time.Millisecond)
	start := time.Now()
	storeMany(t, r, p, 1_000_000, first)
	t.Logf("a million tasks were stored in %s, with %s of Redis's CPU", time.Since(start), used(t, r))
	s := serve(t, r.Store, Config{Settings: settings()})
	second := func(seconds int) string {
		return first.Truncate(time.Second).Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339)
	}
	b := openBrowser(t, 1280, 800)
	window := `due_after: "` + second(50_000) + `", due_before: "` + second(50_001) + `"`
	for _, search := range []struct{ fields, want string }{
		{`{state: "parked"}`, "parked"},
		{`{state: "leased"}`, ""},
		{`{state: "waiting", ` + window + `}`, many("o-050000")},
		{`{state: "waiting", id: "o-09999", due_after: "` + second(99_999) + `"}`, many("o-099999")},
		{`{state: "waiting", id: "o-0500007", ` + window + `}`, "o-0500007"},
		{`{id: "o-0777777"}`, "o-0777777"},
	} {
		b.do(chromedp.Navigate(s.url+"/tasks"), chromedp.WaitVisible(chromedp.CSS("#search")))
		start := time.Now()
		b.eval(`for (const [name, value] of Object.entries(` + search.fields + `)) document.querySelector(
			"form.find [name=" + name + "]").value = value; document.querySelector("#search").focus(); "ready"`)
		b.do(chromedp.KeyEvent("\r"))
		b.becomes("the list", `String(location.search !== "") + document.readyState`, "truecomplete")
		b.do(chromedp.WaitVisible(chromedp.CSS(".pages ~ .command")))
		check.Equal(t, search.fields, b.found(), search.want)
		t.Logf("%s: %s", search.fields, time.Since(start))
	}
	b.do(chromedp.Click(chromedp.CSS("tbody a")), chromedp.WaitVisible(chromedp.CSS(".facts")))
	check.Equal(t, "the task", strings.HasPrefix(b.eval(`document.querySelector("h1").textContent`), "o-0777777"), true)
	status, _, _ := s.ask(http.MethodGet, "/task?topic=orders&id=o-1000000", nil)
	check.Equal(t, "a task that isn't there", status, http.StatusNotFound)
	b.sound()
}

// many returns the ten IDs that have one more digit.
func many(id string) string {
	ids := make([]string, 10)
	for i := range ids {
		ids[i] = id + strconv.Itoa(i)
	}
	return strings.Join(ids, " ")
}

// used returns the CPU time that Redis has used.
func used(t *testing.T, r *fixture.Redis) (sum time.Duration) {
	t.Helper()
	info, err := r.Client.Info(t.Context(), "cpu").Result()
	check.OK(t, err)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			check.OK(t, err)
			sum += time.Duration(seconds * float64(time.Second))
		}
	}
	return sum
}
