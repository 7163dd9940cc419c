package console

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/heartbeat"
	"github.com/duefleet/duefleet/test/servers"
)

var shots = flag.String("shots", "", "a folder for screenshots of the pages")

// browser is a page of chromium.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	mistakes []string // what chromium reports: refused scripts and styles, exceptions
}

// chromium is the process that tests share. It runs while one of them needs it.
var chromium struct {
	sync.Mutex
	ctx   context.Context
	end   context.CancelFunc
	users int
}

// useChromium starts chromium unless it runs, and ends it after the last test that uses it.
func useChromium(t *testing.T) context.Context {
	t.Helper()
	chromium.Lock()
	defer chromium.Unlock()
	if chromium.users == 0 {
		path, err := servers.Find("chromium")
		check.OK(t, err)
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
			chromedp.WSURLReadTimeout(check.Hang))
		chromium.ctx, chromium.end = chromedp.NewExecAllocator(context.Background(), options...)
		chromium.ctx, _ = chromedp.NewContext(chromium.ctx)
		check.OK(t, chromedp.Do(chromium.ctx))
	}
	chromium.users++
	t.Cleanup(func() {
		chromium.Lock()
		defer chromium.Unlock()
		if chromium.users--; chromium.users == 0 {
			check.OK(t, chromedp.Cancel(chromium.ctx)) // waits until chromium has ended
			chromium.end()
		}
	})
	return chromium.ctx
}

// openBrowser opens a page that shares no cookie and no storage with others. It never skips a
// test, since nothing else tests the scripts.
func openBrowser(t *testing.T, width, height int64) *browser {
	t.Helper()
	ctx, _ := chromedp.NewContext(useChromium(t), chromedp.WithNewBrowserContext())
	t.Cleanup(func() { check.OK(t, chromedp.Cancel(ctx)) })
	b := &browser{t: t, ctx: ctx}
	check.OK(t, chromedp.Listen(ctx, b.heard))
	b.do(chromedp.EmulateViewport(width, height))
	zone := emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"}
	_, err := chromedp.Call(ctx, emulation.SetTimezoneOverride, zone)
	check.OK(t, err)
	return b
}

func (b *browser) heard(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.mistakes = append(b.mistakes, fmt.Sprint(e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *cdplog.EventEntryAdded:
		if e.Entry.Source == cdplog.EntrySourceSecurity {
			b.mistakes = append(b.mistakes, e.Entry.Text)
		}
	}
}

// do runs actions within check.Hang.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, check.Hang)
	defer cancel()
	check.OK(b.t, chromedp.Do(ctx, actions...))
}

// eval returns the value of an expression, a promise's too.
func (b *browser) eval(script string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, check.Hang)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.100s: %v", script, err)
	}
	return value
}

// becomes waits until an expression has a value. While one page follows another, it has none.
func (b *browser) becomes(what, script, want string) {
	b.t.Helper()
	check.Until(b.t, what, func() bool {
		value, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](script))
		if err != nil && strings.Contains(err.Error(), "Inspected target navigated or closed") {
			return false
		}
		check.OK(b.t, err)
		return value == want
	})
}

// press presses keys as a keyboard does: a key that the page handles is not typed.
func (b *browser) press(keys string) {
	b.t.Helper()
	for _, key := range keys {
		for _, typ := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
			p := input.DispatchKeyEventParams{Type: typ, Key: string(key)}
			if typ == input.DispatchKeyEventTypeKeyDown {
				p.Text = string(key)
			}
			_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, p)
			check.OK(b.t, err)
		}
	}
}

// theme sets what the user prefers: dark or light.
func (b *browser) theme(name string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
	check.OK(b.t, err)
}

// shoot writes a screenshot if -shots is given.
func (b *browser) shoot(name string) {
	b.t.Helper()
	if *shots == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	check.OK(b.t, err)
	check.OK(b.t, os.WriteFile(filepath.Join(*shots, name+".png"), png, 0o600))
}

// sound reports what chromium found wrong.
func (b *browser) sound() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mistakes) > 0 {
		b.t.Errorf("chromium reports:\n%s", strings.Join(b.mistakes, "\n"))
	}
}

// fleetWithProblems fills a Redis for pictures and axe-core.
func fleetWithProblems(t *testing.T) *fixture.Redis {
	t.Helper()
	r := fixture.New(t)
	topic, _ := r.Serve(t, 4)
	for i, name := range []string{"mails", "invoices.monthly", "reminders-of-a-rather-long-name", "sessions"} {
		_, err := r.Store.Topic(name).Ensure(t.Context(), i+1)
		check.OK(t, err)
	}
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00a"), "a", "b", "c")...)
	fixture.Store(t, r.Store.Topic("sessions"), fixture.Entries(task.In(time.Hour), []byte("\x00a"), hostileID)...)
	fixture.Store(t, r.Store.Topic("sessions"), fixture.Entries(task.In(time.Hour), []byte("\x00{\"a\": [1, 2]}"),
		"json")...)
	invoices := r.Store.Topic("invoices.monthly")
	for minute := range 50 {
		in := task.In(time.Duration(minute)*time.Minute + time.Second*9)
		ids := make([]string, 1+minute*minute%17)
		for i := range ids {
			ids[i] = fmt.Sprintf("%d-%d", minute, i)
		}
		fixture.Store(t, invoices, fixture.Entries(in, []byte("\x00a"), ids...)...)
	}
	park(t, r.Store.Topic("mails"), "returned: NO_ROUTE to exchange 'mails' <b>", hostileID, oddID, "m-1", "m-2")
	park(t, r.Store.Topic("mails"), "refused", "m-3")
	check.OK(t, r.Store.Registry().SaveDocument(t.Context(), "invoices.monthly",
		[]byte("shards: 2\nrate: 2000\ndeclare: {queue: orders}\n")))
	blocked := problem.New(problem.ExchangeMissing, "mails", "no exchange 'mails' in vhost '/'")
	blocked.Nodes, blocked.Since = []string{"one"}, time.Now().Add(-3*time.Minute)
	unsafe := problem.Unsafe([]string{"appendonly is no"})
	unsafe.Since = time.Now().Add(-30 * time.Hour)
	heartbeat.Start(t, r.Store, balance.Member{Instance: "one", Version: "v0.2.0", Started: time.Now().Add(-3 * time.Hour),
		Problems: []problem.Problem{blocked, unsafe}, Topics: map[string]balance.TopicNote{
			"invoices.monthly": {PerSecond: 1.5}, "orders": {PerSecond: 1234.5, Settings: map[string]string{"rate": "2000"}},
			"sessions": {Paused: true, PausedReason: "the consumers are upgraded",
				Settings: map[string]string{"paused": "true"}}}})
	heartbeat.Start(t, r.Store, balance.Member{Instance: "two", Version: "v0.2.0", Started: time.Now().Add(-time.Minute),
		Problems: []problem.Problem{}})
	return r
}

// fair reports what axe-core calls serious or critical in a page, and a page that scrolls
// sideways. In the second theme, only the colours are others.
func (b *browser) fair(name string) {
	b.t.Helper()
	if b.eval(`typeof axe`) == "undefined" {
		axe, err := os.ReadFile("testdata/axe.min.js")
		check.OK(b.t, err)
		b.eval(string(axe) + `;"ready"`)
	}
	for _, look := range []struct{ theme, rules string }{{"dark", ""}, {"light", `{runOnly: ["color-contrast", "link-in-text-block"]}`}} {
		b.theme(look.theme)
		b.shoot(name + "-" + look.theme)
		var faults []string
		check.OK(b.t, json.Unmarshal([]byte(b.eval(`axe.run(`+look.rules+`).then(r => JSON.stringify(r.violations
			.filter(v => v.impact === "serious" || v.impact === "critical")
			.map(v => v.id + ": " + v.help + ": " + v.nodes.map(n => n.html).join(" "))))`)), &faults))
		for _, fault := range faults {
			b.t.Errorf("%s, %s: %s", name, look.theme, fault)
		}
	}
	if got := b.eval(`String(document.documentElement.scrollWidth > innerWidth)`); got != "false" {
		b.t.Errorf("%s scrolls sideways", name)
	}
}

// TestEverybodyCanUseThePages: axe-core finds nothing serious, in both themes, from narrow
// to wide, and the page itself never scrolls sideways.
func TestEverybodyCanUseThePages(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.ShowPayloads = true
	s := serve(t, fleetWithProblems(t).Store, Config{Settings: cfg, Doctor: func(context.Context) []doctor.Finding {
		return []doctor.Finding{{Check: "config", State: doctor.OK, What: "the configuration is good"},
			{Check: "redis.eviction", State: doctor.Fail, What: "evicts", Fix: "CONFIG SET maxmemory-policy noeviction"},
			{Check: "rabbitmq.queue", State: doctor.NotChecked, What: "no right"}}
	}})
	s.ask(http.MethodPost, "/doctor", url.Values{})
	check.Until(t, "the findings", func() bool { return !s.console.examiner.last().At.IsZero() })
	s.console.samples.mu.Lock()
	for i := range 80 { // the newest first; with a gap
		if i < 30 || i > 40 {
			at := time.Now().Add(-time.Duration(i+1) * sampleEvery)
			s.console.samples.taken = slices.Insert(s.console.samples.taken, 0, newSample(at, scanners(float64(i*i%37), 5, 0)))
		}
	}
	s.console.samples.mu.Unlock()
	pages := []struct{ name, path, shows string }{
		{"overview", "/", "#topic-orders"}, {"topic", "/topic/invoices.monthly", "#shard-0"},
		{"last-hour", "/topic/orders", ".pace"},
		{"fleet", "/fleet", "#member-one"}, {"pause", "/topic/orders/pause", "#until"},
		{"tasks", "/tasks?topic=invoices.monthly&id=3", "#search"}, {"task", "/task?topic=orders&id=a", ".facts"},
		{"hostile", "/task?topic=sessions&id=" + url.QueryEscape(hostileID), ".facts"},
		{"hostile-list", "/tasks?topic=sessions", ".scroll"},
		{"doctor", "/doctor", ".problem"}, {"payload", "/task?topic=sessions&id=json", "#payload-title"},
		{"parked", "/parked", "#groups-title"}, {"parked-topic", "/parked?topic=mails", "#tasks-title"},
		{"move", "/tasks/move?topic=orders&all=1", "#to"}, {"cancel", "/tasks/cancel?topic=orders&task=a", ".grave"},
		{"replay", "/parked/replay?topic=mails&reason=no_route", "#rate"},
		{"purge", "/parked/purge?topic=mails&id=" + url.QueryEscape(oddID), ".grave"},
	}
	b := openBrowser(t, 360, 800)
	for _, p := range pages {
		b.do(chromedp.Navigate(s.url+p.path), chromedp.WaitVisible(chromedp.CSS(p.shows)))
		for _, width := range []int64{360, 1280, 1920} {
			b.do(chromedp.EmulateViewport(width, 800))
			b.fair(fmt.Sprintf("%s-%d", p.name, width))
		}
	}
	b.sound()
}

const offline = `String(document.body.classList.contains("offline"))`

const waiting = `document.querySelector("#topic-orders td:nth-of-type(2)").textContent`

// TestTheOverviewLives: a number changes without a reload, and nothing moves. It does so
// again after the console has been restarted. Times have the browser's zone, too.
func TestTheOverviewLives(t *testing.T) {
	t.Parallel()
	r := fleetWithProblems(t)
	s := serve(t, r.Store, Config{Settings: settings()})
	b := openBrowser(t, 1280, 800)
	b.do(chromedp.Navigate(s.url), chromedp.WaitVisible(chromedp.CSS("#topic-orders")))
	check.Equal(t, "waiting", b.eval(waiting), "3")
	b.eval(`window.sameDocument = "yes"; window.moved = []; new PerformanceObserver(list => {
		for (const e of list.getEntries()) for (const s of e.sources) window.moved.push(
			(s.node?.textContent ?? "gone") + ": " + s.previousRect.x + " to " + s.currentRect.x);
	}).observe({type: "layout-shift"}); "ready"`)
	fixture.Store(t, r.Orders(), fixture.Entries(task.In(time.Hour), []byte("\x00a"), "d")...)
	check.Until(t, "the number to change", func() bool { return b.eval(waiting) == "4" })

	cfg := settings()
	cfg.Listen = strings.TrimPrefix(s.url, "http://")
	s.end()
	check.Until(t, "the page to notice", func() bool { return b.eval(offline) == "true" })
	fixture.Store(t, r.Orders(), fixture.Entries(task.In(time.Hour), []byte("\x00a"), "e")...)
	serve(t, r.Store, Config{Settings: cfg})
	check.Until(t, "the number to change after the restart", func() bool { return b.eval(waiting) == "5" })
	check.Equal(t, "offline", b.eval(offline), "false")
	check.Equal(t, "the document is the same", b.eval(`window.sameDocument`), "yes")
	if zones := b.eval(`document.querySelector("#verdict time").textContent`); !strings.Contains(zones, "UTC") ||
		!strings.Contains(zones, "CET") && !strings.Contains(zones, "CEST") && !strings.Contains(zones, "GMT+") {
		t.Errorf("the time is %q", zones)
	}
	check.Equal(t, "texts that moved", b.eval(`window.moved.join("\n")`), "")
	b.sound()
}

// TestKeys: / searches, j and k move, ? helps. A typed text stays while numbers change.
func TestKeys(t *testing.T) {
	t.Parallel()
	r := fleetWithProblems(t)
	s := serve(t, r.Store, Config{Settings: settings()})
	b := openBrowser(t, 1280, 800)
	b.do(chromedp.Navigate(s.url), chromedp.WaitVisible(chromedp.CSS("#topic-orders")))
	active := func() string { return b.eval(`document.activeElement.id`) }
	b.press("jjk")
	check.Equal(t, "the row in focus", active(), "topic-invoices.monthly")
	b.press("/order")
	check.Equal(t, "in focus", active(), "search")
	visible := `String([...document.querySelectorAll("[data-row]")].filter(r => r.checkVisibility()).map(r => r.dataset.row))`
	check.Equal(t, "found", b.eval(visible), "orders")
	fixture.Store(t, r.Orders(), fixture.Entries(task.In(time.Hour), []byte("\x00a"), "d")...)
	check.Until(t, "the number to change", func() bool { return b.eval(waiting) == "4" })
	check.Equal(t, "found later", b.eval(visible), "orders")
	check.Equal(t, "typed", b.eval(`document.getElementById("search").value`), "order")
	b.do(chromedp.KeyEvent("\x1b"))
	b.press("?")
	check.Equal(t, "help is open", b.eval(`String(document.getElementById("help").open)`), "true")
	b.sound()
}

// TestActionsInTheBrowser: a search, its tasks made due, parked tasks, the replay of one
// reason. The command follows what is typed, and the result appears by itself.
func TestActionsInTheBrowser(t *testing.T) {
	t.Parallel()
	r := fleetWithProblems(t)
	s := serve(t, r.Store, Config{Settings: settings()})
	b := openBrowser(t, 360, 700)
	text := func(selector string) string {
		return b.eval(`document.querySelector("` + selector + `")?.textContent ?? ""`)
	}
	done := func(want string) {
		t.Helper()
		b.do(chromedp.Click(chromedp.CSS("button.primary")), chromedp.WaitVisible(chromedp.CSS(".facts")))
		check.Until(t, "the change to end", func() bool { return text("h1 .state") == "done" })
		if facts := text(".facts"); !strings.Contains(facts, want) {
			t.Errorf("the page shows %q", facts)
		}
	}
	b.do(chromedp.Navigate(s.url+"/tasks?topic=sessions"), chromedp.SendKeys(chromedp.CSS("#search"), hostileID[:9]))
	b.do(chromedp.Click(chromedp.CSS(".find button")), chromedp.WaitVisible(chromedp.CSS(`.under .button[href*="id="]`)))
	b.do(chromedp.Click(chromedp.CSS(".under .button")), chromedp.WaitVisible(chromedp.CSS("#rate")))
	done("Made due1")
	b.do(chromedp.Navigate(s.url+"/tasks/move?topic=orders&task=-a"), chromedp.WaitVisible(chromedp.CSS("#to")))
	b.do(chromedp.SendKeys(chromedp.CSS("#to"), "2026-12-01T10:00:00Z"))
	check.Equal(t, "command", text(".command"), "scanner tasks move orders --at='2026-12-01T10:00:00Z' -- '-a'")
	b.do(chromedp.Navigate(s.url+"/topic/mails"), chromedp.WaitVisible(chromedp.CSS(".counts")))
	b.do(chromedp.Click(chromedp.CSS(".counts .warn a")), chromedp.WaitVisible(chromedp.CSS("#tasks-title")))
	b.do(chromedp.Click(chromedp.CSS("table.parked .button")), chromedp.WaitVisible(chromedp.CSS("#rate")))
	check.Equal(t, "the dry run", text(".many"), "4 tasks")
	b.do(chromedp.SendKeys(chromedp.CSS("#rate"), "100"))
	check.Equal(t, "command", text(".command"), "scanner parked replay mails "+
		`--reason='returned: NO_ROUTE to exchange '\''mails'\'' <b>' --rate=100`)
	done("Replayed4")
	check.Equal(t, "parked", parkedIn(t, r.Store.Topic("mails")), 1)
	b.fair("change-360")
	b.do(chromedp.Navigate(s.url+"/parked?topic=mails"), chromedp.WaitVisible(chromedp.CSS("#changes-title")))
	check.Equal(t, "tasks", text("#tasks-title .of"), "1")
	b.sound()
}
