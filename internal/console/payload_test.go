package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestPayloadsAreShownIfAsked: as text, JSON and bytes, a part of large ones, with the AMQP
// headers, and always as text of the page.
func TestPayloadsAreShownIfAsked(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	orders, _ := r.Serve(t, 2)
	payloads := map[string]string{"json": `{"a":[1,{"b":"<script>"}],"c":1e999}`, "text": "it's <b>\x01", "bytes": "\xff\x00\x80",
		"empty": "", "large": strings.Repeat("x", maxPayloadShown) + "END", "deep": strings.Repeat("[", 5000) +
			strings.Repeat("]", 5000)}
	for id, payload := range payloads {
		fixture.Store(t, orders, fixture.Entries(task.In(time.Hour), []byte("\x00"+payload), id)...)
	}
	message, err := amqpmsg.Encode(amqpmsg.Message{RoutingKey: "a.<b>", Headers: map[string]any{"x-n": int64(7)},
		Body: []byte("p")})
	check.OK(t, err)
	fixture.Store(t, orders, fixture.Entries(task.In(time.Hour), message, "amqp")...)
	cfg := settings()
	hidden := serve(t, r.Store, Config{Settings: cfg})
	cfg.ShowPayloads = true
	s := serve(t, r.Store, Config{Settings: cfg})
	for id, want := range map[string][]string{
		"json":  {"&#34;b&#34;: &#34;&lt;script&gt;&#34;\n    }", "1e999", "36 B"},
		"text":  {"it&#39;s &lt;b&gt;", "00000000  69 74 27 73"},
		"bytes": {"00000000  ff 00 80"},
		"empty": {"0 B"},
		"large": {"The first 16,384 bytes"},
		"deep":  {"[[[["},
		"amqp":  {"a.\\u003cb\\u003e", "x-n", "int64", "message-title"},
	} {
		path := "/task?topic=orders&id=" + url.QueryEscape(id)
		_, page, _ := s.ask(http.MethodGet, path, nil)
		contains(t, page, want...)
		for _, text := range []string{"<script>", "END", "<b>"} {
			if strings.Contains(page, text) {
				t.Errorf("%s: the page has %q", id, text)
			}
		}
		if len(page) > 200_000 {
			t.Errorf("%s: the page has %d bytes", id, len(page))
		}
		_, page, _ = hidden.ask(http.MethodGet, path, nil)
		contains(t, page, "B, hidden")
		if strings.Contains(page, "payload-title") || strings.Contains(page, "x-n") {
			t.Errorf("%s: it is shown:\n%s", id, page)
		}
	}
	check.Equal(t, "the default", settings().ShowPayloads, false)
}
