package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// sees waits until the page shows a text, or until it doesn't.
func (o *operator) sees(text string, want bool) {
	o.t.Helper()
	check.Until(o.t, "the page to change: "+text, func() bool { return strings.Contains(o.text("main"), text) == want })
}

// act finds a task by its whole ID, opens it, and takes an action. The field "to" gets a value if
// it isn't "".
func (o *operator) act(id, verb, to string) {
	o.t.Helper()
	o.do(chromedp.Navigate(strings.Replace(o.at, "/topic/orders", "/tasks?topic=orders&id="+url.QueryEscape(id), 1)),
		chromedp.WaitVisible(chromedp.CSS("tbody a")))
	o.click("tbody a", ".facts")
	check.Equal(o.t, "the task", strings.HasPrefix(o.text("h1"), id), true)
	o.click(`.acts a[href^="/`+verb+`?"]`, "button.primary")
	if to != "" {
		o.do(chromedp.SendKeys(chromedp.CSS("#to"), to))
	}
	check.Equal(o.t, "the dry run", o.text(".many"), "1 task")
	o.click("button.primary", ".facts")
	check.Until(o.t, verb+" to be done", func() bool { return o.text("h1 .state") == "done" })
}

// TestTwoViewers: ann acts on a topic that a scanner serves. Bob looks at the topic and sees each
// result without a reload. A page of another site acts for ann without effect.
func TestTwoViewers(t *testing.T) {
	t.Parallel()
	d := serveDocuments(t)
	_, err := d.docs.Consul.Put(t.Context(), "orders", []byte(declared), d.now().Index)
	check.OK(t, err)
	park(t, d.redis.Orders(), "refused", "p-1", "p-2")
	fixture.Store(t, d.redis.Orders(), fixture.Entries(task.In(time.Hour), []byte("\x00a"), hostileID, oddID, "move",
		"run")...)
	d.startScanner(t)
	ann, bob := d.openAs(t, "ann", 1280), d.openAs(t, "bob", 1280)
	bob.do(chromedp.Navigate(bob.at), chromedp.WaitVisible(chromedp.CSS(".counts")))
	bob.eval(`window.sameDocument = "yes"`)
	bob.sees("Waiting4", true)
	bob.sees("Forwarded0/s", true)

	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<!doctype html><form method="post" action="` + d.url + `/topic/orders/pause"></form>
			<script>document.forms[0].submit()</script>`))
	}))
	t.Cleanup(other.Close)
	ann.do(chromedp.Navigate(other.URL))
	ann.refused("this request comes from another site")
	held, err := d.redis.Store.Registry().Holds(t.Context())
	check.OK(t, err)
	check.Equal(t, "pauses", len(held), 0)

	ann.follow("pause", "#reason")
	ann.do(chromedp.SendKeys(chromedp.CSS("#reason"), "a test"))
	ann.click("button.primary", "#settings-title")
	bob.sees("Paused in Redis: a test.", true)
	ann.follow("resume", "button.primary")
	ann.click("button.primary", "#settings-title")
	bob.sees("Paused in Redis", false)

	ann.act(hostileID, "tasks/cancel", "")
	bob.sees("Waiting3", true)
	ann.act(oddID, "tasks/cancel", "")
	bob.sees("Waiting2", true)
	ann.act("move", "tasks/move", "2h")
	check.Equal(t, "dues", dues(t, d.redis), "2 1 4") // the parked ones are due
	ann.act("run", "tasks/run-now", "")
	bob.sees("Waiting1", true)
	bob.sees("Forwarded0/s", false)
	ann.act("p-1", "parked/purge", "")
	bob.sees("Parked1", true)
	ann.act("p-2", "parked/replay", "")
	bob.sees("Parked0", true)
	check.Equal(t, "bob's document is the same", bob.eval(`window.sameDocument`), "yes")
	ann.sound()
	bob.sound()
}

// refused waits for an answer that refuses a request.
func (o *operator) refused(with string) {
	o.t.Helper()
	check.Until(o.t, with, func() bool { return strings.Contains(o.eval(`document.body?.textContent ?? ""`), with) })
}

// TestRedisComesBack: while Redis is away, an open page says so and keeps its numbers. It has new
// ones once Redis is back.
func TestRedisComesBack(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	r := fixture.At(t, server.Addr(), "p")
	r.Serve(t, 1)
	fixture.Store(t, r.Orders(), fixture.Entries(task.In(time.Hour), []byte("\x00a"), "a", "b")...)
	s := serve(t, r.Store, Config{Settings: settings()})
	o := &operator{openBrowser(t, 1280, 800), s.url}
	o.do(chromedp.Navigate(s.url), chromedp.WaitVisible(chromedp.CSS("#topic-orders")))
	o.eval(`window.sameDocument = "yes"`)
	check.Equal(t, "waiting", o.eval(waiting), "2")
	check.OK(t, server.Stop(t.Context()))
	o.sees("Redis can't be read.", true)
	check.Equal(t, "waiting", o.eval(waiting), "2")
	check.Equal(t, "verdict", o.text("#verdict .badge"), "broken")
	check.OK(t, server.Restart(t.Context()))
	o.sees("Redis can't be read.", false)
	fixture.Store(t, r.Orders(), fixture.Entries(task.In(time.Hour), []byte("\x00a"), "c")...)
	check.Until(t, "the number to change", func() bool { return o.eval(waiting) == "3" })
	check.Equal(t, "the document is the same", o.eval(`window.sameDocument`), "yes")
	o.sound()
}
