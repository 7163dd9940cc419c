package httpapi

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// unpaid is the line that ends a batch because the client's rate has no room for it.
type unpaid struct {
	line    int
	problem *Problem
}

// pay takes a line from the rate of the client. It waits for room, at most as long as a pause may
// last, and then returns the answer to the line. A batch that only waits would keep others from its
// place.
func (b *batch) pay(reading context.Context) *Problem {
	c := b.client.Load()
	if c.Rate == 0 {
		return nil
	}
	began := time.Now()
	b.waited = max(0, b.waited-began.Sub(b.paid))
	after := c.bucket.wait(reading, began.Add(b.h.pause-b.waited))
	b.paid = time.Now()
	b.waited += b.paid.Sub(began)
	if after == 0 {
		return nil
	}
	return c.tooFast(after)
}

// end ends the reading because of what the client may not do, and logs the reason.
func (b *batch) end(p *Problem) {
	b.halt()
	b.h.refused.Log(context.WithoutCancel(b.r.Context()), "client", b.r.client.Name, "remote", b.r.RemoteAddr,
		"verb", verbBatch, "topic", b.r.topic, "status", p.Status, "code", p.Code)
}

// permit looks up the client again, because its token, its topics and its verbs may have been
// taken away since the batch began. It returns nil, or the answer to lines with the verb. Without
// the token or the topic no further line can succeed, so the batch ends.
func (b *batch) permit(ctx context.Context, verb string) *Problem {
	c := b.h.lookup(ctx, b.r)
	if c == nil {
		p := unauthorized()
		b.end(p)
		return p
	}
	b.client.Store(c)
	if c.may(verb, b.r.topic) {
		return nil
	}
	p := forbidden(c, verb)
	if !c.may(c.Verbs[0], b.r.topic) {
		b.end(p)
	}
	return p
}

// lastOf makes a request the last one of its connection, because its body wasn't read to the end.
// With full duplex, net/http would take the rest of the body for the next request. A body above
// its limit is how a handler says so after the headers.
func lastOf(w http.ResponseWriter) {
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1)) // fails, as it must
}
