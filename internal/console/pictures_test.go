package console

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/heartbeat"
)

var pictures = flag.Bool("pictures", false, "write the pictures of docs/console.md")

const (
	picturesDir   = "../../docs/console"
	pictureWidth  = 1280
	maxPictureLen = 100_000
)

// shop is the made-up fleet of the pictures: three scanners, and four topics with documents
// in Consul.
type shop struct {
	*site
	redis *fixture.Redis
}

func serveShop(t *testing.T) shop {
	t.Helper()
	r := fixture.New(t)
	docs, _ := openDocuments(t)
	for _, topic := range []struct {
		name     string
		shards   int
		settings string
	}{
		{"orders", 4, "rate: 2000\nexchange: shop\nrouting_key: orders.due\ndeclare:\n  queue: orders.due\n"},
		{"invoices", 2, "exchange: billing\n"}, {"reminders", 2, "max_attempts: 5\n"}, {"sessions", 1, "paused: true\n"},
	} {
		_, err := r.Store.Topic(topic.name).Ensure(t.Context(), topic.shards)
		check.OK(t, err)
		document := []byte(fmt.Sprintf("shards: %d\n", topic.shards) + topic.settings)
		_, err = docs.Consul.Put(t.Context(), topic.name, document, 0)
		check.OK(t, err)
		check.OK(t, r.Store.Registry().SaveDocument(t.Context(), topic.name, document))
	}
	for _, change := range []struct{ setting, reason string }{
		{"rate=500", "the warehouse is slow"}, {"rate=2000", "the warehouse is fast again"}} {
		p, err := docs.Plan(t.Context(), "orders", topicconfig.Edit{Assignments: []string{change.setting}})
		check.OK(t, err)
		if len(p.Changes) == 0 {
			continue
		}
		_, err = docs.Commit(t.Context(), p, topicconfig.Author{Name: "operator", Verb: "set", Reason: change.reason})
		check.OK(t, err)
	}
	storeShop(t, r)
	startShop(t, r)
	cfg := settings()
	cfg.ShowPayloads = true
	s := serve(t, r.Store, Config{Settings: cfg, Documents: &docs, Doctor: func(context.Context) []doctor.Finding {
		return []doctor.Finding{
			{Check: "redis.connection", State: doctor.OK, What: "redis:6379 answers"},
			{Check: "redis.eviction", State: doctor.OK, What: "redis:6379 evicts nothing"},
			{Check: "redis.persistence", State: doctor.Warn, What: "the append-only file is synced by the operating system",
				Fix: "CONFIG SET appendfsync everysec"},
			{Check: "consul.rights", State: doctor.OK, What: "the token may read and write the topics' documents"},
			{Check: "fleet", State: doctor.OK, What: "3 scanners run"},
			{Check: "topic invoices exchange", State: doctor.Fail, What: "no exchange 'billing' in vhost '/'",
				Fix: "declare the exchange billing in RabbitMQ"},
		}
	}})
	s.console.samples.mu.Lock()
	defer s.console.samples.mu.Unlock()
	var past []sample
	for i := range 119 {
		one := sample{at: time.Now().Add(time.Duration(i-119) * sampleEvery), topics: map[string]measure{}}
		wave := 1 + .3*math.Sin(float64(i)/9) + .1*math.Sin(float64(i)*2)
		one.topics["orders"] = measure{1200 * wave, .004 * wave, .02 * wave * wave}
		one.topics["reminders"] = measure{15 / wave, .003, .009 * wave}
		past = append(past, one)
	}
	s.console.samples.taken = past
	return shop{s, r}
}

// storeShop stores the tasks of the shop.
func storeShop(t *testing.T, r *fixture.Redis) {
	t.Helper()
	park(t, r.Store.Topic("invoices"), "returned: NO_ROUTE", "invoice-0007", "invoice-0012", "invoice-0020")
	park(t, r.Store.Topic("invoices"), "refused: queue length limit", "invoice-0009")
	park(t, r.Store.Topic("reminders"), "5 attempts without a confirm", "reminder-0004")
	for minute := range 60 {
		ids := make([]string, 20+minute*minute*7%40)
		for i := range ids {
			ids[i] = fmt.Sprintf("order-%04d", minute*100+i)
		}
		in := task.In(time.Duration(minute+1)*time.Minute - 20*time.Second)
		payload := []byte("\x00{\"order\": 4711, \"total\": \"12.50 EUR\"}")
		fixture.Store(t, r.Orders(), fixture.Entries(in, payload, ids...)...)
	}
	fixture.Store(t, r.Store.Topic("sessions"), fixture.Entries(task.In(0), []byte("\x00{}"), "session-1", "session-2")...)
	fixture.Store(t, r.Store.Topic("reminders"), fixture.Entries(task.In(26*time.Hour), []byte("\x00{}"), "reminder-1",
		"reminder-2", "reminder-3")...)
}

// startShop has three scanners send heartbeats.
func startShop(t *testing.T, r *fixture.Redis) {
	t.Helper()
	blocked := problem.New(problem.ExchangeMissing, "invoices", "no exchange 'billing' in vhost '/'")
	blocked.Since = time.Now().Add(-12 * time.Minute)
	blocked.Nodes = []string{"scanner-1", "scanner-2", "scanner-3"}
	for i, name := range blocked.Nodes {
		late := balance.Lateness{balance.LatenessBucket(4 * time.Millisecond): 950,
			balance.LatenessBucket(20 * time.Millisecond): 50}
		heartbeat.Start(t, r.Store, balance.Member{Instance: name, Version: "v0.2.0", Host: fmt.Sprintf("host-%d", i+1),
			PID: 1, Admin: fmt.Sprintf("10.0.0.%d:8380", i+1), Source: "consul:duefleet/topics", Documents: 0x5f3a9c21_00000000,
			Started: time.Now().Add(-time.Duration(50-i) * time.Hour), Problems: []problem.Problem{blocked},
			Topics: map[string]balance.TopicNote{"orders": {PerSecond: 412, Lateness: late, Rate: 2000},
				"reminders": {PerSecond: 5, Lateness: late}, "sessions": {Paused: true}}})
	}
}

// picture is one page of the shop. Its name is in the file's name.
type picture struct{ name, path, shows string }

// pages returns the pages of the pictures, and does before what they show.
func (s shop) pages() []picture {
	s.t.Helper()
	s.ask(http.MethodPost, "/doctor", url.Values{})
	check.Until(s.t, "the findings", func() bool { return !s.console.examiner.last().At.IsZero() })
	_, _, h := s.ask(http.MethodPost, "/parked/replay?topic=reminders&all=1", url.Values{})
	change := h.Get("Location")
	s.ended(change)
	return []picture{
		{"overview", "/", "#topic-orders"}, {"topic", "/topic/orders", ".pace"},
		{"history", "/topic/orders/history", "#changes-title"}, {"tasks", "/tasks?topic=orders&id=order-010", "#search"},
		{"task", "/task?topic=orders&id=order-0102", "#payload-title"}, {"parked", "/parked", "#groups-title"},
		{"replay", "/parked/replay?topic=invoices&reason=no_route", ".many"}, {"change", change, ".facts"},
		{"fleet", "/fleet", "#member-scanner-1"}, {"doctor", "/doctor", ".problem"},
	}
}

// small returns a picture with its 256 most frequent colours.
func small(t *testing.T, content []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(content))
	check.OK(t, err)
	often := map[color.Color]int{}
	for y := range from.Bounds().Dy() {
		for x := range from.Bounds().Dx() {
			often[from.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(often), func(a, b color.Color) int {
		return cmp.Or(often[b]-often[a], strings.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	to := image.NewPaletted(from.Bounds(), colours[:min(len(colours), 256)])
	draw.Draw(to, to.Bounds(), from, image.Point{}, draw.Src)
	var out bytes.Buffer
	check.OK(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to))
	return out.Bytes()
}

// TestPicturesOfTheDocs: docs/console.md shows a picture of each screen, and chromium shows the
// pages of these pictures. With -pictures it writes them.
func TestPicturesOfTheDocs(t *testing.T) {
	t.Parallel()
	s := serveShop(t)
	b := openBrowser(t, pictureWidth, 720)
	b.theme("light")
	_, err := chromedp.Call(b.ctx, emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{Hidden: true})
	check.OK(t, err)
	taken := map[string]bool{}
	for _, p := range s.pages() {
		b.do(chromedp.Navigate(s.url+p.path), chromedp.WaitVisible(chromedp.CSS(p.shows)))
		b.eval(`document.documentElement.style.scrollbarGutter = "auto"; // a picture has no scrollbar
			new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(() => drawn("ready"))))`)
		content, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		check.OK(t, err)
		if *pictures {
			check.OK(t, os.WriteFile(filepath.Join(picturesDir, p.name+".png"), small(t, content), 0o644)) //nolint:gosec // all may see it
		}
		taken[p.name+".png"] = true
	}
	b.sound()
	for _, screen := range s.console.screens() {
		if name := strings.ToLower(screen.title) + ".png"; !taken[name] {
			t.Errorf("the screen %s has no picture", screen.title)
		}
	}
	page, err := os.ReadFile("../../docs/console.md")
	check.OK(t, err)
	shown := map[string]bool{}
	for _, match := range regexp.MustCompile(`\]\(console/(.+?\.png)\)`).FindAllSubmatch(page, -1) {
		shown[string(match[1])] = true
	}
	files, err := filepath.Glob(filepath.Join(picturesDir, "*"))
	check.OK(t, err)
	there := map[string]bool{}
	for _, file := range files {
		there[filepath.Base(file)] = true
		content, err := os.ReadFile(file)
		check.OK(t, err)
		size, err := png.DecodeConfig(bytes.NewReader(content))
		check.OK(t, err)
		if size.Width != pictureWidth || len(content) > maxPictureLen {
			t.Errorf("%s has %d pixels and %d bytes", file, size.Width, len(content))
		}
	}
	check.Equal(t, "pictures in docs/console", fmt.Sprint(there), fmt.Sprint(taken))
	check.Equal(t, "pictures in docs/console.md", fmt.Sprint(shown), fmt.Sprint(taken))
}

// TestNumbersHaveUnits: and commas for thousands.
func TestNumbersHaveUnits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{count(0), "0"}, {count(999), "999"}, {count(1000), "1,000"}, {count(-1234567), "-1,234,567"},
		{rate(0), "0/s"}, {rate(.25), "0.25/s"}, {rate(9.96), "10/s"}, {rate(12345.6), "12,346/s"},
		{seconds(0), "–"}, {seconds(.00025), "250 µs"}, {seconds(.0123), "12.3 ms"}, {seconds(2.5), "2.5 s"},
		{seconds(7200), "2 h"},
		{skew(1.5), "+50 %"}, {skew(.999), "+0 %"}, {skew(0), "-100 %"},
		{span(-time.Second), "0 s"}, {span(119 * time.Second), "119 s"}, {span(50 * time.Hour), "2 d"},
		{string(moment(time.Time{})), "–"},
		{string(moment(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))),
			`<time datetime="2026-01-02T03:04:05Z">2026-01-02 03:04:05 UTC</time>`},
	} {
		check.Equal(t, "text", c.got, c.want)
	}
}
