package console

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// declared is a document with which a scanner delivers.
const declared = "shards: 2\nrate: 10\ntick: 100ms\nexchange: orders\nrouting_key: orders.due\n" +
	"declare:\n  type: direct\n  queue: orders.due\n  queue_type: classic\n"

// startScanner starts a scanner that takes its topics from Consul.
func (d *documents) startScanner(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	check.OK(t, fleet.WriteConfig(config, fleet.Settings{RedisAddr: d.redis.Addr, RedisPrefix: d.redis.Prefix,
		RabbitMQURL: servertest.RabbitMQ(t), ConsulAddr: d.consul.Addr, ConsulPrefix: d.consul.Prefix}.Document()))
	program := scannerProgram(t)
	s, err := fleet.StartScanner(check.Context(t), fleet.ScannerConfig{Binary: program, Config: config, Dir: dir})
	check.OK(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), check.Hang)
		defer cancel()
		_, err := s.Stop(ctx)
		check.OK(t, err)
	})
}

// operator is a browser in which somebody changes documents.
type operator struct {
	*browser
	at string
}

func (d *documents) openAs(t *testing.T, name string, width int64) *operator {
	t.Helper()
	o := &operator{openBrowser(t, width, 800), d.url + "/topic/orders"}
	o.do(chromedp.Navigate(d.url+"/sign-in"), chromedp.WaitVisible(chromedp.CSS("#user")),
		chromedp.SendKeys(chromedp.CSS("#user"), name), chromedp.SendKeys(chromedp.CSS("#password"), name+"\r"),
		chromedp.WaitVisible(chromedp.CSS("#topic-orders")))
	return o
}

// follow opens the topic's page, and follows its link to another page. That page is live, so the
// link is found and clicked in one step.
func (o *operator) follow(path, shows string) {
	o.t.Helper()
	o.do(chromedp.Navigate(o.at), chromedp.WaitVisible(chromedp.CSS("#settings-title")))
	o.eval(`document.querySelector('.acts a[href$="/` + path + `"]').click(); "ready"`)
	o.do(chromedp.WaitVisible(chromedp.CSS(shows)))
}

// click clicks on something and waits for the next page, which shows something. A navigation
// that begins while a page still loads can be aborted.
func (o *operator) click(on, shows string) {
	o.t.Helper()
	o.do(chromedp.Click(chromedp.CSS(on)), chromedp.WaitVisible(chromedp.CSS(shows)))
	o.becomes("the end of loading", `document.readyState`, "complete")
}

// write replaces the value of the form.
func (o *operator) write(value string) {
	o.t.Helper()
	o.eval(`document.getElementById("value").focus(); document.getElementById("value").select(); "ready"`)
	o.do(chromedp.KeyEvent(value))
}

func (o *operator) text(selector string) string {
	o.t.Helper()
	return o.eval(`document.querySelector("` + selector + `")?.textContent ?? ""`)
}

const (
	look  = `button[value="look"]`
	write = `button[value="write"]`
)

// TestSettingsInTheBrowser: an operator changes the shards of a topic that a scanner serves
// and sees the change done. Then the rate, the document after a conflict, and an undo.
func TestSettingsInTheBrowser(t *testing.T) {
	t.Parallel()
	d := serveDocuments(t)
	_, err := d.docs.Consul.Put(t.Context(), "orders", []byte(declared), d.now().Index)
	check.OK(t, err)
	ids := make([]string, 300)
	for i := range ids {
		ids[i] = fmt.Sprint("task-", i)
	}
	fixture.Store(t, d.redis.Orders(), fixture.Entries(task.In(time.Hour), []byte("\x00a"), ids...)...)
	d.startScanner(t)
	o := d.openAs(t, "ann", 360)

	o.follow("shards", "#value")
	o.write("8")
	check.Equal(t, "command", o.text(".command"), "scanner topic set orders shards=8")
	o.fair("shards")
	o.click(look, ".diff")
	o.click(write, "#settings-title")
	check.Until(t, "the change to be done", func() bool {
		return strings.Contains(o.text("p.notice"), "applied by 1 scanner") && o.text("#shard-7 th") == "7" &&
			o.text("#change-title") == ""
	})

	o.follow("rate", "#value")
	o.write("250")
	o.do(chromedp.KeyEvent("\r")) // the keyboard suffices
	o.do(chromedp.WaitVisible(chromedp.CSS(".diff")))
	check.Equal(t, "the difference", o.text(".notes"), "orders.rate: 10 -> 250")
	o.click(write, "#settings-title")
	check.Equal(t, "rate", d.now().Topic.Rate, 250)

	o.follow("settings", "textarea")
	o.fair("document")
	o.do(chromedp.SendKeys(chromedp.CSS("#value"), "# mine\n"))
	d.elsewhere("rate=7")
	o.click(look, ".diff")
	if alert := o.text("[role=alert]"); !strings.Contains(alert, "meanwhile") {
		t.Errorf("the page says %q", alert)
	}
	o.fair("conflict")
	if gone := o.text(".diff .gone"); gone != "-rate: 7\n" {
		t.Errorf("gone is %q", gone)
	}
	o.click(write, "#settings-title")
	check.Equal(t, "rate", d.now().Topic.Rate, 250)
	if raw := string(d.now().Raw); !strings.Contains(raw, "# mine\n") || !strings.Contains(raw, "shards: 8\n") {
		t.Errorf("the document is %q", raw)
	}

	o.follow("history", "#changes-title")
	o.fair("history")
	check.Equal(t, "who", o.text("tbody td:nth-of-type(2)"), "ann")
	o.click(`a[href$="/undo"]`, ".diff")
	o.fair("undo")
	o.click(write, "#settings-title")
	check.Equal(t, "rate", d.now().Topic.Rate, 7)
	check.Equal(t, "the author", d.changes()[len(d.changes())-1].By, "ann")
	o.sound()
}

// TestAViewerInTheBrowser sees the forms, can press no button, and a request is refused.
func TestAViewerInTheBrowser(t *testing.T) {
	t.Parallel()
	d := serveDocuments(t)
	o := d.openAs(t, "bob", 1280)
	o.follow("rate", "#value")
	check.Equal(t, "disabled", o.eval(`String(document.querySelector('`+look+`').disabled)`), "true")
	check.Equal(t, "status", o.eval(`fetch("/topic/orders/rate", {method: "POST", body: new URLSearchParams({step: "write",
		value: "5", index: document.querySelector("[name=index]").value})}).then(r => String(r.status))`), "403")
	check.Equal(t, "the document", string(d.now().Raw), ordersDocument)
	o.sound()
}
