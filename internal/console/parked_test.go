package console

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// oddID has 255 bytes. A page can't print some of them.
var oddID = strings.Repeat("\x01'\"<\u202e", 36) + "abc"

// park stores tasks and parks them. No other task of the topic may be due.
func park(t *testing.T, topic *shard.Topic, reason string, ids ...string) {
	t.Helper()
	fixture.Store(t, topic, fixture.Entries(task.Now(), []byte("\x00secret"), ids...)...)
	parked := 0
	for _, at := range fixture.Placement(t, topic).InOrder() {
		b, err := topic.Shard(at).Claim(t.Context(), shard.Claim{Claimant: "w", Request: fmt.Sprint(reason, at),
			Limit: len(ids), Lease: time.Hour})
		check.OK(t, err)
		var all []shard.Release
		for _, claimed := range b.Tasks {
			all = append(all, shard.Release{Lease: shard.Lease{ID: claimed.ID, Token: claimed.Token}, Park: true,
				Reason: reason})
		}
		n, err := topic.Shard(at).Release(t.Context(), all)
		check.OK(t, err)
		parked += n
	}
	check.Equal(t, "parked", parked, len(ids))
}

// parkedIn returns how many tasks are parked in a topic.
func parkedIn(t *testing.T, topic *shard.Topic) int64 {
	t.Helper()
	n, err := admin.Parked{Topic: topic}.Count(t.Context())
	check.OK(t, err)
	return n
}

// twoUsers serves a console for ann, who operates, and bob, who doesn't. It returns the
// headers of their sessions.
func twoUsers(t *testing.T, store *shard.Store) (s *site, ann, bob []string) {
	t.Helper()
	return twoUsersWith(t, store, nil)
}

// twoUsersWith is twoUsers with topics' documents in Consul.
func twoUsersWith(t *testing.T, store *shard.Store, docs *topicconfig.Documents) (s *site, ann, bob []string) {
	t.Helper()
	cfg := settings()
	cfg.UsersFile = usersFile(t, map[string]string{"ann": ":operate", "bob": ""})
	s = serve(t, store, Config{Settings: cfg, Documents: docs})
	return s, s.signIn(url.Values{"user": {"ann"}, "password": {"ann"}}),
		s.signIn(url.Values{"user": {"bob"}, "password": {"bob"}})
}

// ended waits for the end of a change and returns its page, as somebody sees it.
func (s *site) ended(path string, headers ...string) (page string) {
	s.t.Helper()
	check.Until(s.t, "the change to end", func() bool {
		_, page, _ = s.ask(http.MethodGet, path, nil, headers...)
		return strings.Contains(page, "<dt>Ended</dt>")
	})
	return page
}

// TestParkedTasksAreGrouped by topic and reason, and listed for one topic.
func TestParkedTasksAreGrouped(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	orders, _ := r.Serve(t, 3)
	mails := r.Store.Topic("mails")
	_, err := mails.Ensure(t.Context(), 1)
	check.OK(t, err)
	park(t, orders, "NO_ROUTE <b>", "a", "b", hostileID)
	park(t, orders, "refused", "c")
	park(t, mails, "refused", "d")
	s := serve(t, r.Store, Config{Settings: settings()})
	status, page, _ := s.ask(http.MethodGet, "/parked", nil)
	check.Equal(t, "status", status, http.StatusOK)
	contains(t, page, `<h2 id="groups-title">Reasons <span class="of">3</span>`, "NO_ROUTE &lt;b&gt;",
		`href="/parked/replay?reason=NO_ROUTE&#43;%3Cb%3E&amp;topic=orders"`, `<td class="n">3</td>`,
		`href="/parked?reason=refused&amp;topic=mails"`, `aria-current="page">Parked`)
	_, page, _ = s.ask(http.MethodGet, "/parked?topic=orders&reason=no_route", nil)
	contains(t, page, `Reasons <span class="of">1</span>`, `Tasks <span class="of">3</span>`,
		"&lt;script&gt;alert(1)&lt;/script&gt;", "scanner parked ls orders --reason=&#39;no_route&#39;",
		`href="/parked/purge?id=a&amp;topic=orders"`, `href="/parked/replay?reason=no_route&amp;topic=orders"`)
	for _, text := range []string{"mails</a>", "secret", "<b>", "<script>alert"} {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q:\n%s", text, page)
		}
	}
	_, page, _ = s.ask(http.MethodGet, "/parked?topic=orders&reason=no_route&no_reason=1", nil)
	contains(t, page, `role="alert"`, "choose one of both")
	_, page, _ = s.ask(http.MethodGet, "/parked?topic=orders&older_than=1h", nil)
	contains(t, page, "None.")
	_, page, _ = s.ask(http.MethodGet, "/parked?topic=orders&older_than=soon", nil)
	contains(t, page, `role="alert"`, "soon")
	for _, path := range []string{"/parked?topic=none", "/parked/replay?topic=none&all=1", "/parked/replay?topic=orders",
		"/parked/purge", "/change/none"} {
		if status, page, _ := s.ask(http.MethodGet, path, nil); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, page)
		}
	}
}

// TestParkedWithoutAReason: that group has actions, for its tasks alone.
func TestParkedWithoutAReason(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	orders, _ := r.Serve(t, 2)
	park(t, orders, "", "a", "b")
	park(t, orders, "refused", "c")
	s := serve(t, r.Store, Config{Settings: settings()})
	const query = "?no_reason=1&topic=orders"
	_, page, _ := s.ask(http.MethodGet, "/parked", nil)
	contains(t, page, ">without a reason</a>", `href="/parked/purge`+html.EscapeString(query)+`"`)
	_, page, _ = s.ask(http.MethodGet, "/parked"+query, nil)
	contains(t, page, `Tasks <span class="of">2</span>`, " checked>", "scanner parked ls orders --no-reason")
	_, page, _ = s.ask(http.MethodGet, "/parked/purge"+query, nil)
	contains(t, page, "2 tasks", "in topic orders without a reason", "scanner parked purge orders --no-reason")
	_, _, h := s.ask(http.MethodPost, "/parked/purge"+query, url.Values{})
	contains(t, s.ended(h.Get("Location")), "<dt>Purged</dt><dd>2</dd>")
	check.Equal(t, "parked", parkedIn(t, orders), 1)
}

// TestParkedTasksAreReplayedAndPurged: an operator sees how many and acts; everybody sees
// the result, and the audit record has it. A viewer and another site change nothing.
func TestParkedTasksAreReplayedAndPurged(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	orders, _ := r.Serve(t, 3)
	park(t, orders, "it's NO_ROUTE", "a", "b", oddID)
	park(t, orders, "refused", "c", "d", hostileID)
	s, ann, bob := twoUsers(t, r.Store)
	lines := s.events(t.Context(), "/stream/parked?topic=orders", bob...)
	for _, step := range []struct {
		verb, query, shows, done, filter string
		left                             int64
	}{
		{"replay", url.Values{"id": {oddID}}.Encode(), "--id=$&#39;\\001\\&#39;&#34;&lt;", "<dt>Replayed</dt><dd>1</dd>",
			`ID "\x01`, 5},
		{"purge", url.Values{"id": {hostileID}}.Encode(), "--id=&#39;&#34;&gt;&lt;script", "<dt>Purged</dt><dd>1</dd>",
			`ID "\"><script>`, 4},
		{"replay", "reason=it%27s+no_route", `--reason=&#39;it&#39;\&#39;&#39;s no_route&#39;`, "<dt>Replayed</dt><dd>2</dd>",
			`with "it's no_route" in its reason`, 2},
		{"purge", "all=1", "scanner parked purge orders --all", "<dt>Purged</dt><dd>2</dd>", "all", 0},
	} {
		path := "/parked/" + step.verb + "?topic=orders&" + step.query
		before := parkedIn(t, orders)
		_, page, _ := s.ask(http.MethodGet, "/parked?topic=orders", nil, bob...)
		contains(t, page, fmt.Sprintf(`Tasks <span class="of">%d</span>`, before))
		status, page, _ := s.ask(http.MethodGet, path, nil, bob...)
		check.Equal(t, "status", status, http.StatusOK)
		contains(t, page, step.shows, "<button disabled>", "This needs the role operate", `<strong class="many">`)
		status, _, _ = s.ask(http.MethodPost, path, url.Values{}, bob...)
		check.Equal(t, "bob's", status, http.StatusForbidden)
		status, _, _ = s.ask(http.MethodPost, path, url.Values{}, append(ann, "Sec-Fetch-Site", "cross-site")...)
		check.Equal(t, "another site's", status, http.StatusForbidden)
		check.Equal(t, "parked so far", parkedIn(t, orders), before)

		status, page, h := s.ask(http.MethodPost, path, url.Values{}, ann...)
		check.Equal(t, "ann's: "+page, status, http.StatusSeeOther)
		contains(t, s.ended(h.Get("Location"), bob...), step.done, "<dt>By</dt><dd>ann</dd>")
		check.Equal(t, "parked", parkedIn(t, orders), step.left)
		entries, err := bulk.Audit(t.Context(), r.Store, "orders")
		check.OK(t, err)
		if e := entries[0]; e.By != "ann" || e.Command != "parked "+step.verb || e.State != bulk.Done ||
			e.Counts.Changed != before-step.left || !strings.HasPrefix(e.Filter, step.filter) {
			t.Errorf("audit of %s: %+v", path, e)
		}
	}
	_, page, _ := s.ask(http.MethodGet, "/parked/purge?topic=orders&all=1", nil, ann...)
	contains(t, page, "Nothing to change now")
	if strings.Contains(page, `<button class="primary`) {
		t.Error("there is a button for nothing")
	}
	_, page, _ = s.ask(http.MethodGet, "/parked?topic=orders", nil, bob...)
	contains(t, page, `Changes <span class="of">4</span>`, "ann", "None.")
	for line := ""; !strings.Contains(line, "None."); {
		line = check.Receive(t, "what bob sees", lines)
	}
}

// TestAChangeOutlivesTheBrowser: it runs at its rate while nobody waits. A topic has one at
// a time. The end of the console ends it, and the audit record says how far it was.
func TestAChangeOutlivesTheBrowser(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	orders, _ := r.Serve(t, 1)
	park(t, orders, "refused", "a", "b", "c", "d", "e", "f", "g", "h")
	s := serve(t, r.Store, Config{Settings: settings()})
	const path = "/parked/replay?topic=orders&all=1"
	for _, bad := range []url.Values{{"rate": {"-1"}}, {"limit": {"many"}}} {
		status, page, _ := s.ask(http.MethodPost, path, bad)
		check.Equal(t, "status", status, http.StatusBadRequest)
		contains(t, page, `role="alert"`)
	}
	status, _, h := s.ask(http.MethodPost, path, url.Values{"rate": {"1"}, "limit": {"7"}})
	check.Equal(t, "status", status, http.StatusSeeOther)
	lines := s.events(t.Context(), "/stream"+h.Get("Location"))
	for line := ""; !strings.Contains(line, "2 of 7 tasks"); {
		line = check.Receive(t, "progress", lines)
	}
	_, page, _ := s.ask(http.MethodGet, h.Get("Location"), nil)
	contains(t, page, "scanner parked replay orders --all --limit=7 --rate=1", "<progress")
	status, page, _ = s.ask(http.MethodPost, path, url.Values{})
	check.Equal(t, "a second change", status, http.StatusConflict)
	contains(t, page, `href="`+h.Get("Location")+`"`)
	s.end()
	entries, err := bulk.Audit(t.Context(), r.Store, "orders")
	check.OK(t, err)
	if e := entries[0]; len(entries) != 1 || e.State != bulk.Failed || e.Counts.Changed < 2 || e.Counts.Changed > 6 ||
		e.Filter != "all, at most 7" || 8-e.Counts.Changed != parkedIn(t, orders) {
		t.Errorf("audit: %+v", entries)
	}
}
