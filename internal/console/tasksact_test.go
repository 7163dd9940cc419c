package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestTasksAreRunMovedAndCancelled: one, those that a search finds, or all. An operator sees
// how many before and acts; everybody sees the result, and the audit record has it. A viewer
// and another site change nothing.
func TestTasksAreRunMovedAndCancelled(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	orders, _ := r.Serve(t, 3)
	fixture.Store(t, orders, fixture.Entries(task.In(time.Hour), []byte("\x00a"), "a-1", "a-2", "b-1", "-b", oddID,
		hostileID)...)
	s, ann, bob := twoUsers(t, r.Store)
	for _, step := range []struct {
		verb, query           string
		form                  url.Values
		shows, ran, done      string
		command, filter, link string
		due                   string // of how many tasks within ten minutes, between 110 and 130 minutes, in all
	}{
		{"run-now", "task=" + url.QueryEscape(oddID), nil, "run-now orders $&#39;\\001", "", "<dt>Made due</dt><dd>1</dd>",
			"tasks run-now", `ID "\x01`, "/task?", "1 0 6"},
		{"move", "id=a-", url.Values{"to": {"2h"}, "rate": {"50"}}, "move orders --id-prefix=&#39;a-&#39;",
			"--in=&#39;2h&#39; --rate=50", "<dt>Moved</dt><dd>2</dd>", "tasks move --in 2h", `with IDs that begin with "a-"`,
			"/tasks?", "1 2 6"},
		{"move", "task=-b", url.Values{"by": {"1h"}}, "move orders -- &#39;-b&#39;", "--by=&#39;1h&#39; -- &#39;-b&#39;",
			"<dt>Moved</dt><dd>1</dd>", "tasks move --by 1h", `ID "-b"`, "/task?", "1 3 6"},
		{"move", "all=1", url.Values{"to": {time.Now().Add(2 * time.Hour).UTC().Format(time.RFC3339)}, "limit": {"3"}},
			"move orders --all", "--at=&#39;20", "<dt>Moved</dt><dd>3</dd>", "tasks move --at 20", "all, at most 3", "/tasks?",
			""},
		{"cancel", "task=" + url.QueryEscape(hostileID), nil, "cancel orders &#39;&#34;&gt;&lt;script", "",
			"<dt>Cancelled</dt><dd>1</dd>", "tasks cancel", `ID "\"><script>`, "/task?", ""},
		{"cancel", "all=1", nil, "cancel orders --all", "", "<dt>Cancelled</dt><dd>5</dd>", "tasks cancel", "all", "/tasks?",
			"0 0 0"},
	} {
		path := "/tasks/" + step.verb + "?topic=orders&" + step.query
		before := dues(t, r)
		_, page, _ := s.ask(http.MethodGet, path, nil, bob...)
		contains(t, page, "scanner tasks "+step.shows, "<button disabled>", `<strong class="many">`, `href="`+step.link)
		status, _, _ := s.ask(http.MethodPost, path, step.form, bob...)
		check.Equal(t, "bob's", status, http.StatusForbidden)
		status, _, _ = s.ask(http.MethodPost, path, step.form, append(ann, "Sec-Fetch-Site", "cross-site")...)
		check.Equal(t, "another site's", status, http.StatusForbidden)
		check.Equal(t, "tasks so far", dues(t, r), before)
		if step.form == nil {
			step.form = url.Values{}
		}
		status, page, h := s.ask(http.MethodPost, path, step.form, ann...)
		check.Equal(t, "ann's: "+page, status, http.StatusSeeOther)
		contains(t, s.ended(h.Get("Location"), bob...), step.done, step.ran, "<dt>By</dt><dd>ann</dd>")
		if got := dues(t, r); step.due != "" {
			check.Equal(t, "due after "+path, got, step.due)
		}
		entries, err := bulk.Audit(t.Context(), r.Store, "orders")
		check.OK(t, err)
		if e := entries[0]; e.By != "ann" || !strings.HasPrefix(e.Command, step.command) || e.State != bulk.Done ||
			!strings.HasPrefix(e.Filter, step.filter) {
			t.Errorf("audit of %s: %+v", path, e)
		}
	}
}

// dues counts tasks by when they are due.
func dues(t *testing.T, r *fixture.Redis) string {
	t.Helper()
	var soon, later, all int
	check.OK(t, admin.Tasks{Topic: r.Orders()}.Each(t.Context(), func(l admin.Listed) bool {
		all++
		switch in := time.Until(l.Next).Minutes(); {
		case in < 10:
			soon++
		case in > 110 && in < 130:
			later++
		}
		return true
	}))
	return strings.Join([]string{count(int64(soon)), count(int64(later)), count(int64(all))}, " ")
}

// TestActionsOnTasksAreOffered where they apply, and mistakes change nothing.
func TestActionsOnTasksAreOffered(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	orders, _ := r.Serve(t, 1)
	park(t, orders, "refused", "p")
	fixture.Store(t, orders, fixture.Entries(task.In(time.Hour), []byte("\x00a"), "a")...)
	s := serve(t, r.Store, Config{Settings: settings()})
	for path, want := range map[string][]string{
		"/task?topic=orders&id=a":           {"/tasks/run-now?", "/tasks/move?", "/tasks/cancel?"},
		"/task?topic=orders&id=p":           {"/parked/replay?", "/parked/purge?"},
		"/tasks?topic=orders":               {"/tasks/run-now?all=1", "/tasks/move?all=1", "/tasks/cancel?all=1"},
		"/tasks?topic=orders&state=parked":  {"/tasks/cancel?state=parked"},
		"/tasks?topic=orders&state=waiting": {"/tasks/run-now?state=waiting", "/tasks/move?", "/tasks/cancel?"},
		"/tasks?topic=orders&id=none":       nil,
	} {
		_, page, _ := s.ask(http.MethodGet, path, nil)
		for _, link := range want {
			contains(t, page, `href="`+link)
		}
		check.Equal(t, "actions on "+path, strings.Count(page, `class="button"`), len(want))
	}
	const move = "/tasks/move?topic=orders&task=a"
	for _, form := range []url.Values{{}, {"to": {"2h"}, "by": {"1h"}}, {"to": {"soon"}}, {"by": {"soon"}},
		{"to": {"900000d"}}, {"by": {"0s"}}} {
		status, page, _ := s.ask(http.MethodPost, move, form)
		check.Equal(t, "status of "+form.Encode(), status, http.StatusBadRequest)
		contains(t, page, `role="alert"`)
	}
	for _, path := range []string{"/tasks/cancel?topic=orders", "/tasks/cancel?topic=orders&all=1&state=soon",
		"/tasks/move?topic=none&all=1"} {
		if status, page, _ := s.ask(http.MethodGet, path, nil); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, page)
		}
	}
	_, page, _ := s.ask(http.MethodGet, "/tasks/cancel?topic=orders&task=gone", nil)
	contains(t, page, "Nothing to change now")
	check.Equal(t, "tasks", dues(t, r), "1 0 2")
}
