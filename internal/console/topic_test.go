package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/heartbeat"
)

// TestATopicsPage shows counts, what falls due, shards, settings and problems of one topic.
func TestATopicsPage(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, p := r.Serve(t, 2)
	fixture.Put(t, topic, p, 1, fixture.Entries(task.In(30*time.Second), []byte("\x00a"), "a", "b")...)
	fixture.Put(t, topic, p, 1, fixture.Entries(task.In(2*time.Hour), []byte("\x00a"), "c")...)
	check.OK(t, topic.Store().Registry().SaveDocument(t.Context(), topic.Name(),
		[]byte("shards: 2\nrate: 2000\ndeclare: {queue: <b>}\n")))
	route := problem.New(problem.ExchangeMissing, "orders", "no exchange 'orders'")
	other := problem.New(problem.ExchangeMissing, "mails", "no exchange 'mails'")
	heartbeat.Start(t, r.Store, balance.Member{Instance: "one", Problems: []problem.Problem{route, other},
		Topics: map[string]balance.TopicNote{"orders": {PerSecond: 2}}})
	s := serve(t, r.Store, Config{Settings: settings()})
	status, page, _ := s.ask(http.MethodGet, "/topic/orders?window=minute", nil)
	check.Equal(t, "status", status, http.StatusOK)
	contains(t, page, "<title>orders – duefleet</title>", "<dt>Waiting</dt><dd>3</dd>",
		`next minute <span class="of">2</span>`, `next hour <span class="of">2</span>`, `next day <span class="of">3</span>`,
		": 2 tasks; at the rate of the last minute, 2/s, that takes 1 s", "no exchange &#39;orders&#39;",
		"docs/alerts.md#duefleettopicblocked", `<td class="n">3</td><td class="n">&#43;100 %</td>`,
		`<tr id="setting-rate" class="differs"><th scope="row"><code>rate</code></th><td>2000</td><td>0</td><td>document</td></tr>`,
		`<tr id="setting-tick"><th scope="row"><code>tick</code></th><td>1s</td><td><span class="dim">same</span></td><td>default<`,
		`<code>declare.queue</code></th><td>&lt;b&gt;</td><td>none</td><td>document<`,
		`href="/topic/orders/pause"`, "with routing key &#34;orders&#34;, queue &#34;&lt;b&gt;&#34;. "+
			"Scanners report: no exchange &#39;orders&#39;.")
	if strings.Contains(page, "mails") {
		t.Error("the page has another topic's problem")
	}
	check.Equal(t, "a good route", routeWords([]problem.Problem{problem.New(problem.TopicPaused, "orders", "paused")}, 1),
		"Scanners report no problem with it.")
	check.Equal(t, "without scanners", routeWords(nil, 0), "No scanner runs, so nobody asks RabbitMQ about it.")
	_, fleet, _ := s.ask(http.MethodGet, "/", nil)
	contains(t, fleet, `<a href="/topic/orders">orders</a>`)
	for _, path := range []string{"/topic/none", "/topic/%3Cscript%3E", "/topic/none/pause",
		"/topic/%22%3E%3Cscript%3E/resume"} {
		status, page, h := s.ask(http.MethodGet, path, nil)
		if status != http.StatusNotFound || !strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d %s", path, status, page)
		}
	}
}

// TestTheProgressOfAChangeOfShards is shown while it runs.
func TestTheProgressOfAChangeOfShards(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, p := r.Serve(t, 1)
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00a"), "a", "b", "c", "d", "e", "f")...)
	began, err := topic.Begin(t.Context(), p, 3)
	check.OK(t, err)
	check.Equal(t, "began", began, true)
	s := serve(t, r.Store, Config{Settings: settings()})
	_, page, _ := s.ask(http.MethodGet, "/topic/orders", nil)
	contains(t, page, "Shards 1 to 3", "0 of about ", "<dt>Clean shards</dt><dd>0 of 3</dd>",
		"<dt>Time left</dt><dd>–</dd>")

	now := time.Now()
	v := newProgressView(admin.TopicStatus{Previous: 1, Shards: 3, Polled: 3, Change: &admin.Change{Moved: 30,
		Misplaced: 70, End: now.Add(3 * time.Minute)}}, now)
	check.Equal(t, "time left", v.Left, 3*time.Minute)
	check.Equal(t, "of", v.Of, 100)
}

// TestATopicsPageFollowsTheTopic: its stream has a new number within its own pause.
func TestATopicsPageFollowsTheTopic(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, _ := r.Serve(t, 1)
	s := serve(t, r.Store, Config{Settings: settings()})
	lines := s.events(t.Context(), "/stream/topic/orders?window=day")
	check.Receive(t, "an event", lines)
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00a"), "a")...)
	for line := ""; !strings.Contains(line, "<dt>Waiting</dt><dd>1</dd>"); {
		line = check.Receive(t, "an event with the task", lines)
	}
	if now, _ := s.console.reader.latest(); now.number != 0 {
		t.Error("the fleet was read for one topic's page")
	}
}

// TestPauseInRedis: an operator pauses and resumes a topic. The log says who. Others may
// not, and neither may other sites.
func TestPauseInRedis(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	cfg := settings()
	cfg.UsersFile = usersFile(t, map[string]string{"ann": ":operate", "bob": ""})
	s := serve(t, r.Store, Config{Settings: cfg})
	ann := s.signIn(url.Values{"user": {"ann"}, "password": {"ann"}})
	bob := s.signIn(url.Values{"user": {"bob"}, "password": {"bob"}})
	holds := func() map[string]registry.Hold {
		t.Helper()
		all, err := r.Store.Registry().Holds(t.Context())
		check.OK(t, err)
		return all
	}
	form := url.Values{"until": {"2h"}, "reason": {"it's\nmoved <script>"}}
	const path = "/topic/orders/pause"
	status, _, _ := s.ask(http.MethodPost, path, form, bob...)
	check.Equal(t, "bob's", status, http.StatusForbidden)
	_, page, _ := s.ask(http.MethodGet, path, nil, bob...)
	contains(t, page, "scanner topic pause orders --in-redis", "This needs the role operate", "<button disabled>")
	status, _, _ = s.ask(http.MethodPost, path, form, append(ann, "Sec-Fetch-Site", "cross-site")...)
	check.Equal(t, "another site's", status, http.StatusForbidden)
	for field, bad := range map[string]string{"until": "soon", "reason": strings.Repeat("x", maxReason+1)} {
		status, page, _ = s.ask(http.MethodPost, path, url.Values{field: {bad}}, ann...)
		check.Equal(t, "with a mistake", status, http.StatusBadRequest)
		contains(t, page, `role="alert"`, bad[:4])
	}
	check.Equal(t, "paused so far", len(holds()), 0)

	status, _, h := s.ask(http.MethodPost, path, form, ann...)
	check.Equal(t, "ann's", status, http.StatusSeeOther)
	got := holds()["orders"]
	check.Equal(t, "reason", got.Reason, "it's moved <script>")
	if left := time.Until(got.Until); left < 119*time.Minute || left > 121*time.Minute {
		t.Errorf("it ends in %s", left)
	}
	contains(t, s.log.String(), "msg=\"pause in redis changed\" user=ann topic=orders paused=true", "path="+path)
	_, page, _ = s.ask(http.MethodGet, h.Get("Location"), nil, ann...)
	contains(t, page, "Paused in Redis. Scanners apply it", "it&#39;s moved &lt;script&gt;", `href="/topic/orders/resume"`)
	status, _, _ = s.ask(http.MethodPost, "/topic/orders/resume", url.Values{}, ann...)
	check.Equal(t, "resume", status, http.StatusSeeOther)
	check.Equal(t, "paused after that", len(holds()), 0)
	entries, err := bulk.Audit(t.Context(), r.Store, "orders")
	check.OK(t, err)
	if len(entries) != 2 || entries[0].By != "ann" || entries[0].Command != "topic resume --in-redis" ||
		entries[1].Command != "topic pause --in-redis" || entries[1].State != bulk.Done {
		t.Errorf("the audit has %+v", entries)
	}
}

// TestThePageOfTheFleet shows each scanner with what it sees.
func TestThePageOfTheFleet(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	heartbeat.Start(t, r.Store, balance.Member{Instance: "one", Version: "v1", Host: "h-one", PID: 7,
		Source: "consul:duefleet/topics", Started: time.Now().Add(-3 * time.Hour), Documents: 0x12345678_00000000,
		Problems: []problem.Problem{
			problem.New(problem.RabbitMQBlocked, "", "memory alarm"), problem.Away(problem.ConsulAway, "no leader")}})
	heartbeat.Start(t, r.Store, balance.Member{Instance: "two", Problems: []problem.Problem{}})
	s := serve(t, r.Store, Config{Settings: settings()})
	_, page, _ := s.ask(http.MethodGet, "/fleet", nil)
	contains(t, page, `<tr id="member-one"`, "h-one", "consul:duefleet/topics", "<code>12345678</code>", "3 h", "memory alarm",
		"no leader", `<tr><th scope="row">two</th>`, "Reports no problem", `aria-current="page">Fleet`)
	if strings.Count(page, "memory alarm") != 1 {
		t.Error("another scanner has the problem, too")
	}
}

// TestAStreamOutlivesTheReadDeadline of the server.
func TestAStreamOutlivesTheReadDeadline(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	r.Serve(t, 1)
	s := serve(t, r.Store, Config{Settings: settings()})
	start := time.Now()
	lines := s.events(t.Context(), "/stream/topic/orders")
	for time.Since(start) < readTimeout+readTopicEvery {
		if check.Receive(t, "an event", lines); s.console.streams.Load() == 0 {
			t.Fatalf("the stream ended after %s", time.Since(start))
		}
	}
}
