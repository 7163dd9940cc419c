package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/duefleet/duefleet/test/check"
)

// plain turns the scripts of pages off.
func (o *operator) plain() {
	o.t.Helper()
	_, err := chromedp.Call(o.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	check.OK(o.t, err)
}

// noScript fails the test if a script of the page has run.
func (o *operator) noScript(page string) {
	o.t.Helper()
	check.Equal(o.t, page+": scripts", o.eval(`String(typeof htmx + document.querySelectorAll(".local").length)`), "undefined0")
}

// navigate clicks a link or a button, and returns when another document is there and loaded. The
// old one may have what is waited for, and a reload would end the navigation.
func (o *operator) navigate(on, shows string) {
	o.t.Helper()
	o.eval(`window.left = "here"`)
	o.do(chromedp.Click(chromedp.CSS(on)))
	o.becomes("the next page", `String(window.left) + document.readyState`, "undefinedcomplete")
	o.do(chromedp.WaitVisible(chromedp.CSS(shows)))
}

// TestWithoutJavaScript: each screen shows its content, and links and forms act, in a browser
// that runs no scripts.
func TestWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := serveShop(t)
	pages := s.pages()
	o := &operator{openBrowser(t, 1280, 800), s.url + "/topic/orders"}
	o.plain()
	for _, p := range pages {
		o.do(chromedp.Navigate(s.url+p.path), chromedp.WaitVisible(chromedp.CSS(p.shows)))
		o.noScript(p.name)
	}
	o.do(chromedp.Navigate(s.url+"/"), chromedp.WaitVisible(chromedp.CSS("#search")))
	o.do(chromedp.SendKeys(chromedp.CSS("#search"), "order\r"))
	o.becomes("the search", `location.search + document.readyState`, "?q=ordercomplete")
	check.Equal(t, "found", o.eval(`[...document.querySelectorAll("[data-row]")].filter(r => r.checkVisibility())
		.map(r => r.dataset.row).join(" ")`), "orders")
	o.navigate(`#topic-orders a`, ".counts")
	check.Equal(t, "waiting", strings.HasPrefix(o.text(".counts dd"), "2,"), true)

	o.navigate(`.acts a[href$="/pause"]`, "#reason") // a pause, with its reason
	o.do(chromedp.SendKeys(chromedp.CSS("#reason"), "a test"))
	o.navigate("button.primary", "#settings-title")
	check.Equal(t, "the notice", o.text("p.notice.degraded"), "Paused in Redis: a test.")

	o.navigate(`.acts a[href$="/rate"]`, "#value") // a document, with its difference
	o.eval(`document.getElementById("value").value = "77"; "ready"`)
	o.navigate(look, ".diff")
	check.Equal(t, "the difference", o.text(".notes"), "orders.rate: 2000 -> 77")
	o.navigate(write, "#settings-title")

	o.do(chromedp.Navigate(s.url+"/tasks"), chromedp.WaitVisible(chromedp.CSS("#search"))) // a task, from search to result
	o.eval(`document.getElementById("topic").value = "orders"; "ready"`)
	o.do(chromedp.SendKeys(chromedp.CSS("#search"), "order-0102\r"))
	o.becomes("the task", `String(location.search.includes("order-0102")) + document.readyState`, "truecomplete")
	o.navigate("tbody a", ".facts")
	o.navigate(`.acts a[href^="/tasks/cancel?"]`, "button.primary")
	check.Equal(t, "the dry run", o.text(".many"), "1 task")
	o.navigate("button.primary", ".facts")
	check.Until(t, "the change to end, with reloads", func() bool {
		o.do(chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS(".facts")))
		return o.text("h1 .state") == "done"
	})
	status, _, _ := s.ask(http.MethodGet, "/task?topic=orders&id=order-0102", nil)
	check.Equal(t, "the cancelled task", status, http.StatusNotFound)

	o.do(chromedp.Navigate(s.url+"/doctor"), chromedp.WaitVisible(chromedp.CSS(".problem")))
	at := s.console.examiner.last().At
	o.navigate("button.primary", "#findings-title")
	check.Until(t, "the findings, with reloads", func() bool { return s.console.examiner.last().At.After(at) })
	o.do(chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS(".problem")))
	o.noScript("doctor")
	o.sound()
}

// TestTheSignInForm: axe-core finds nothing serious in it, in both themes. It signs in and out
// without scripts.
func TestTheSignInForm(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.UsersFile, cfg.Token = usersFile(t, map[string]string{"ann": ":operate"}), "a-token-of-some-length-0123456789"
	s := serve(t, fleetWithProblems(t).Store, Config{Settings: cfg})
	for _, width := range []int64{360, 1280} {
		o := &operator{openBrowser(t, width, 800), s.url}
		o.do(chromedp.Navigate(s.url+"/topic/orders"), chromedp.WaitVisible(chromedp.CSS("#user")))
		o.fair("sign-in")
		o.do(chromedp.SendKeys(chromedp.CSS("#user"), "ann"), chromedp.SendKeys(chromedp.CSS("#password"), "wrong\r"),
			chromedp.WaitVisible(chromedp.CSS("[role=alert]")))
		o.fair("sign-in-refused")
		o.plain()
		o.do(chromedp.Navigate(s.url+"/topic/orders"), chromedp.WaitVisible(chromedp.CSS("#user")))
		o.noScript("sign-in")
		o.do(chromedp.SendKeys(chromedp.CSS("#user"), "ann"), chromedp.SendKeys(chromedp.CSS("#password"), "ann\r"),
			chromedp.WaitVisible(chromedp.CSS(".counts")))
		o.navigate(`form[action="/sign-out"] button`, "#user")
		o.sound()
	}
}
