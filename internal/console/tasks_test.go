package console

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// hostileID is an ID that a page must show as text.
const hostileID = `"><script>alert(1)</script>&id=x/../`

// TestTasksAreFound by their whole ID, by its begin, by state and by due time, page by page.
func TestTasksAreFound(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, _ := r.Serve(t, 3)
	var ids []string
	for i := range 150 {
		ids = append(ids, fmt.Sprintf("o-%03d", i))
	}
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00secret"), ids...)...)
	fixture.Store(t, topic, fixture.Entries(task.In(3*time.Hour), []byte("\x00secret"), hostileID, "late")...)
	s := serve(t, r.Store, Config{Settings: settings()})
	found := func(path string) (page string, ids []string) {
		t.Helper()
		status, page, _ := s.ask(http.MethodGet, path, nil)
		check.Equal(t, "status of "+path, status, http.StatusOK)
		for _, match := range regexp.MustCompile(`data-row="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			ids = append(ids, html.UnescapeString(match[1]))
		}
		return page, ids
	}
	page, first := found("/tasks")
	next := regexp.MustCompile(`href="([^"]*)" rel="next"`).FindStringSubmatch(page)
	if len(first) != 100 || len(next) != 2 {
		t.Fatalf("%d tasks on the first page, next %q", len(first), next)
	}
	page, rest := found(html.UnescapeString(next[1]))
	seen := map[string]bool{}
	for _, id := range append(first, rest...) {
		seen[id] = true
	}
	if len(seen) != 152 || len(rest) != 52 || strings.Contains(page, `rel="next"`) || !strings.Contains(page, "First page") {
		t.Errorf("%d tasks on both pages, %d on the second", len(seen), len(rest))
	}
	for query, n := range map[string]int{"id=o-01": 10, "id=o-010": 1, "state=parked": 0, "due_after=2h": 2,
		"due_before=2h&id=l": 0, "id=" + url.QueryEscape(hostileID): 1} {
		if _, ids := found("/tasks?topic=orders&" + query); len(ids) != n {
			t.Errorf("%s: %q", query, ids)
		}
	}
	page, _ = found("/tasks?topic=orders&id=o-01&state=soon")
	contains(t, page, `role="alert"`, "must be one of")
	page, _ = found("/tasks?topic=orders&id=it%27s&due_before=2h")
	contains(t, page, `--id-prefix=&#39;it&#39;\&#39;&#39;s&#39; --due-before=&#39;2h&#39; --limit 100`, "None.")
}

// TestATasksPage shows the task without its payload, a hostile ID as text, and its options.
func TestATasksPage(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, p := r.Serve(t, 3)
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00secret"), hostileID)...)
	s := serve(t, r.Store, Config{Settings: settings()})
	_, list, _ := s.ask(http.MethodGet, "/tasks?topic=orders", nil)
	link := regexp.MustCompile(`<th scope="row"><a href="(/task\?[^"]*)"`).FindStringSubmatch(list)
	if len(link) != 2 {
		t.Fatalf("no link:\n%s", list)
	}
	status, page, _ := s.ask(http.MethodGet, html.UnescapeString(link[1]), nil)
	check.Equal(t, "status", status, http.StatusOK)
	contains(t, page, "&lt;script&gt;alert(1)&lt;/script&gt;&amp;id=x/../",
		fmt.Sprintf("<dt>Shard</dt><dd>%d</dd>", p.New(hostileID)), "6 B, hidden", `<span class="state">waiting</span>`,
		`Options <span class="of">0</span>`)
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), shard.EncodeBody(&task.Task{Options: task.Options{
		CorrelationID: "0", Priority: 7, Expiration: time.Minute, ReplyTo: "<b>"}}), "options")...)
	_, page, _ = s.ask(http.MethodGet, "/task?topic=orders&id=options", nil)
	contains(t, page, `Options <span class="of">4</span>`, "priority</code></th><td>7<", "expiration</code></th><td>1m0s<",
		"correlation_id</code></th><td>0<", "reply_to</code></th><td>&lt;b&gt;<")
	for _, text := range []string{page, list} {
		if strings.Contains(text, "<script>") || strings.Contains(text, "secret") {
			t.Errorf("markup or a payload:\n%s", text)
		}
	}
	for _, path := range []string{"/task?topic=orders&id=none", "/task?topic=none&id=a", "/tasks?topic=none", "/task"} {
		if status, _, _ := s.ask(http.MethodGet, path, nil); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// TestARecurringTasksPage shows the rule, the runs that are left, the next times and whether
// the stored run was moved. The list marks recurring tasks and their runs. The page of a run
// leads to its recurring task, and actions say what they do to all runs.
func TestARecurringTasksPage(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, _ := r.Serve(t, 3)
	client, err := producer.New(producer.Config{Redis: r.Client, Prefix: r.Prefix})
	check.OK(t, err)
	first := time.Now().UTC().Add(24 * time.Hour).Truncate(time.Hour)
	shown := func(hours int) string {
		at := first.Add(time.Duration(hours) * time.Hour)
		return string(moment(at))
	}
	_, err = client.Schedule(t.Context(), producer.Request{Topic: "orders", ID: hostileID, When: task.At(first),
		Group: "<customer>", Recurrence: &task.Recurrence{Cron: "0 * * * *", Zone: "UTC", Runs: 7}})
	check.OK(t, err)
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00"), "plain")...)
	run := shard.EncodeBody(&task.Task{Series: hostileID, Headers: map[string]string{"h": "v"}})
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), run, "the run")...)
	s := serve(t, r.Store, Config{Settings: settings()})
	_, list, _ := s.ask(http.MethodGet, "/tasks?topic=orders", nil)
	contains(t, list, `<span class="dim">recurs: 0 * * * * UTC</span>`, `<span class="dim">a run</span>`)
	check.Equal(t, "marks", strings.Count(list, `<span class="dim">`), 2)
	q := url.Values{"topic": {"orders"}, "id": {hostileID}}
	_, page, _ := s.ask(http.MethodGet, "/task?"+q.Encode(), nil)
	contains(t, page, "<dt>Recurs</dt><dd>0 * * * * UTC</dd>", "<dt>Runs left</dt><dd>7</dd>", "one comes for all of them",
		"<dt>Group</dt><dd>&lt;customer&gt;</dd>", "<dt>This run</dt><dd>at its time</dd>",
		"<dt>Next times</dt><dd>"+shown(0)+", "+shown(1)+", "+shown(2)+"</dd>")
	_, err = client.Reschedule(t.Context(), "orders", hostileID, task.At(first.Add(3*time.Hour)))
	check.OK(t, err)
	_, page, _ = s.ask(http.MethodGet, "/task?"+q.Encode(), nil)
	contains(t, page, "moved; it was planned for "+shown(0)+"</dd>",
		"<dt>Next times</dt><dd>"+shown(3)+", "+shown(4)+", "+shown(5)+"</dd>")
	_, page, _ = s.ask(http.MethodGet, "/task?topic=orders&id=the+run", nil)
	contains(t, page, `<dt>Run of</dt><dd><a href="`+html.EscapeString(taskLink("orders", hostileID))+`">&#34;&gt;&lt;script`)
	_, page, _ = s.ask(http.MethodGet, "/task?topic=orders&id=plain", nil)
	for verb, text := range map[string]string{"run-now": "One run of a recurring task comes now",
		"move": "One run of a recurring task moves.", "cancel": "A recurring task ends with all its runs."} {
		for query, want := range map[string]bool{"all=1": true, "id=a": true, "task=" + url.QueryEscape(hostileID): true,
			"task=plain": false, "task=the+run": false} {
			_, act, _ := s.ask(http.MethodGet, "/tasks/"+verb+"?topic=orders&"+query, nil)
			check.Equal(t, verb+" of "+query, strings.Contains(act, text), want)
		}
	}
	for _, word := range []string{"Recurs", "Run of", "Next times", "Group"} {
		check.Equal(t, word+" on the page of another task", strings.Contains(page, word), false)
	}
}
