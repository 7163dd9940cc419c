package console

import (
	"bytes"
	"html/template"
	"net/http"
	"time"
)

const (
	// eventLimit limits writing one event to a browser that doesn't read.
	eventLimit = 10 * time.Second
	// maxStreams bounds the streams that are open.
	maxStreams = 500
)

// stream sends the verdict and the screen with each reading, until the browser leaves, the
// console stops, or the session ends.
func (c *Console) stream(w http.ResponseWriter, r *http.Request, t *template.Template, from *reader,
	show func(*http.Request, reading) (page, error)) {
	if c.streams.Add(1) > maxStreams {
		c.streams.Add(-1)
		http.Error(w, "too many streams are open", http.StatusServiceUnavailable)
		return
	}
	defer c.streams.Add(-1)
	defer from.watch(r.Context())()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies pass each event on at once
	to := http.NewResponseController(w)
	_ = to.SetWriteDeadline(time.Time{})      // the server has one for pages
	_, _ = w.Write([]byte("retry: 1000\n\n")) // the browser connects again a second after the stream ends
	sent := uint64(0)
	for {
		now, next := from.latest()
		if now.number > sent && time.Since(now.tried) < 2*from.every {
			sent = now.number
			p, err := show(r, now)
			if err != nil {
				return
			}
			c.complete(&p, r)
			var out bytes.Buffer
			if event(&out, t, "verdict", p) != nil || event(&out, t, "screen", p) != nil {
				return
			}
			_ = to.SetWriteDeadline(time.Now().Add(eventLimit))
			if _, err := w.Write(out.Bytes()); err != nil || to.Flush() != nil {
				return
			}
			_ = to.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, written or not
		}
		select {
		case <-r.Context().Done():
			return
		case <-next:
		}
		if _, known := c.access.identify(r); !known {
			return
		}
	}
}

// event appends a server-sent event with a template's output.
func event(out *bytes.Buffer, t *template.Template, name string, p page) error {
	var html bytes.Buffer
	if err := t.ExecuteTemplate(&html, name, p); err != nil {
		return err
	}
	out.WriteString("event: " + name + "\n")
	for line := range bytes.Lines(html.Bytes()) {
		out.WriteString("data: ")
		out.Write(bytes.TrimRight(line, "\r\n"))
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	return nil
}
