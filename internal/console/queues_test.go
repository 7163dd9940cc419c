package console

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/chromedp/chromedp"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// queuesOf returns the rows of a page's table of queues, and the line below it.
func (s *site) queuesOf() (rows []string, foot string) {
	s.t.Helper()
	_, page, _ := s.ask(http.MethodGet, "/topic/orders", nil)
	_, table, _ := strings.Cut(page, `<table class="queues">`)
	table, _, _ = strings.Cut(table, "</section>")
	body, after, _ := strings.Cut(table, "</tbody>")
	tags := regexp.MustCompile(`<[^>]*>`)
	for _, row := range strings.Split(body, "</tr>")[1:] {
		row = strings.NewReplacer("</th>", "|", "</td>", "|").Replace(row)
		if row = strings.Trim(strings.TrimSpace(tags.ReplaceAllString(row, "")), "|"); row != "" {
			rows = append(rows, row)
		}
	}
	_, foot, _ = strings.Cut(after, `<p class="foot queues">`)
	foot, _, _ = strings.Cut(foot, "</p>")
	return rows, tags.ReplaceAllString(foot, "")
}

// queueTopic creates the topic orders with a document that declares two queues.
func queueTopic(t *testing.T) *fixture.Redis {
	t.Helper()
	r := fixture.New(t)
	topic, _ := r.Serve(t, 1)
	check.OK(t, topic.Store().Registry().SaveDocument(t.Context(), topic.Name(),
		[]byte("declare: {queue: orders.due, dead_letter: orders.dead}\n")))
	return r
}

// TestTheDepthOfQueues: the page has what RabbitMQ says about the queues that the topic
// declares, and follows it. Many viewers cost one question.
func TestTheDepthOfQueues(t *testing.T) {
	t.Parallel()
	url := servertest.RabbitMQ(t)
	ch := servertest.Channel(t, url)
	_, err := ch.QueueDeclare("orders.due", true, false, false, false, nil)
	check.OK(t, err)
	for range 3 {
		check.OK(t, ch.PublishWithContext(t.Context(), "", "orders.due", false, false, amqp.Publishing{}))
	}
	var asked atomic.Int64
	s := serve(t, queueTopic(t).Store, Config{Settings: settings(),
		Queues: func(ctx context.Context, names []string) ([]doctor.Queue, error) {
			asked.Add(1)
			return doctor.AskQueues(ctx, config.RabbitMQ{URLs: []string{url}}, names)
		}})
	b, began := openBrowser(t, 1280, 800), time.Now()
	b.do(chromedp.Navigate(s.url+"/topic/orders"), chromedp.WaitVisible(chromedp.CSS(".queues td")))
	b.eval(`window.moved = ""; new PerformanceObserver(list => {
		for (const e of list.getEntries()) window.moved += e.value + ": " + e.sources.map(s => s.node?.textContent) + "; ";
	}).observe({type: "layout-shift"}); document.querySelector(".queues").scrollIntoView(); "ready"`)
	messages := func() string { return b.eval(`document.querySelector(".queues td").textContent`) }
	check.Until(t, "the depth", func() bool { return messages() == "3" })
	rows, foot := s.queuesOf()
	check.Equal(t, "rows", len(rows), 2)
	check.Equal(t, "the queue", rows[0], "orders.due|3|0|–")
	check.Equal(t, "the other queue", rows[1], "orders.dead (dead letters)|–|–|no such queue")
	if !strings.HasPrefix(foot, "RabbitMQ said this at ") {
		t.Errorf("below: %s", foot)
	}
	var viewers sync.WaitGroup
	for range 10 {
		viewers.Go(func() { s.queuesOf() })
	}
	viewers.Wait()
	if n, most := asked.Load(), 1+int64(time.Since(began)/askQueuesEvery); n > most {
		t.Errorf("asked %d times, want %d at most", n, most)
	}
	_, err = ch.Consume("orders.due", "", true, false, false, false, nil)
	check.OK(t, err)
	check.Until(t, "the depth to change", func() bool { return messages() == "0" })
	check.Equal(t, "consumers", b.eval(`document.querySelector(".queues td + td").textContent`), "1")
	if moved := b.eval(`window.moved`); moved != "" {
		t.Errorf("layout shift of %s", moved)
	}
	b.sound()
}

// TestASilentRabbitMQDelaysNoPage: the page comes at once. It shows what RabbitMQ said before.
func TestASilentRabbitMQDelaysNoPage(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts and says nothing
	check.OK(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	r := queueTopic(t)
	asked := make(chan struct{}, 10)
	s := serve(t, r.Store, Config{Settings: settings(),
		Queues: func(ctx context.Context, names []string) ([]doctor.Queue, error) {
			asked <- struct{}{}
			return doctor.AskQueues(ctx, config.RabbitMQ{URLs: []string{fmt.Sprintf("amqp://u:sesame@%s/", ln.Addr())}}, names)
		}})
	rows, foot := s.queuesOf()
	check.Receive(t, "the question", asked)
	check.Equal(t, "rows", strings.Join(rows, " "), "orders.due|–|–|– orders.dead (dead letters)|–|–|–")
	check.Equal(t, "below", foot, "Not known so far: RabbitMQ is asked.")
	s.console.depths.mu.Lock()
	for _, one := range s.console.depths.kept {
		one.At, one.Queues = time.Now(), []doctor.Queue{{Messages: 4, Consumers: 2}, {Messages: 1}}
	}
	s.console.depths.mu.Unlock()
	start := time.Now()
	rows, _ = s.queuesOf()
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("the page took %s while RabbitMQ is asked", took)
	}
	check.Equal(t, "the last known", strings.Join(rows, " "), "orders.due|4|2|– orders.dead (dead letters)|1|0|–")
	check.Until(t, "the end of the question", func() bool {
		_, foot = s.queuesOf()
		return strings.HasPrefix(foot, "Not known now: ")
	})
	if !strings.Contains(foot, "RabbitMQ said this at ") || strings.Contains(foot, "sesame") {
		t.Errorf("below: %s", foot)
	}
	rows, _ = s.queuesOf()
	check.Equal(t, "the last known", rows[0], "orders.due|4|2|–")
}

// TestWithoutRabbitMQ: a console that can't ask RabbitMQ says so. A topic that names no queue
// has no table of queues.
func TestWithoutRabbitMQ(t *testing.T) {
	t.Parallel()
	r := queueTopic(t)
	s := serve(t, r.Store, Config{Settings: settings()})
	rows, foot := s.queuesOf()
	check.Equal(t, "rows", len(rows), 2)
	check.Equal(t, "below", foot, "Not configured: this console doesn't ask RabbitMQ.")
	check.Equal(t, "without a queue", s.console.depths.view(config.Topic{Exchange: "orders"}) == nil, true)
	check.Equal(t, "with the default exchange", s.console.depths.view(config.Topic{RoutingKey: "q"}).Rows[0].Name, "q")
}
