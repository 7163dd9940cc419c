package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
)

// patient makes a server whose parts of a request have times of their own.
func patient(t *testing.T, change func(*Config), times func(*Server, *handler)) *door {
	t.Helper()
	d := open(t, change)
	d.end()
	var err error
	d.server, err = New(d.server.cfg.withRegistry())
	check.OK(t, err)
	times(d.server, d.server.http.Handler.(*handler))
	check.OK(t, d.server.Listen())
	d.url, d.end = "http://"+d.server.Addr(), check.Background(t, "the server", d.server.Run)
	t.Cleanup(d.client.CloseIdleConnections)
	return d
}

// slowly sends a PUT whose body comes byte by byte for at least a time. It returns the answer.
func (d *door) slowly(id string, least time.Duration) (answer, error) {
	body, bytes := io.Pipe()
	ctx, end := context.WithTimeout(context.Background(), least)
	defer end()
	go func() { drip(ctx, bytes, "x"); _ = bytes.Close() }()
	return d.try(http.MethodPut, path(id)+"?in=1h", body)
}

// TestASlowBodyLeavesTheTimeForItsAnswer: the time for the answer begins after the body.
func TestASlowBodyLeavesTheTimeForItsAnswer(t *testing.T) {
	t.Parallel()
	const forAnAnswer = time.Second // of a request without a body
	d := patient(t, nil, func(s *Server, _ *handler) { s.http.WriteTimeout = forAnAnswer })
	a, err := d.slowly("a", forAnAnswer*3/2)
	_, there := d.stored("a")
	if err != nil {
		t.Fatalf("no answer: %v; stored: %v", err, there)
	}
	a.want(t, "a slow body", 200, nil)
	check.Equal(t, "stored", there, true)
}

// occupy sends the header and a part of the body of a PUT, and waits until the body has its memory.
func (d *door) occupy(id string) net.Conn {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.server.Addr())
	check.OK(d.t, err)
	d.t.Cleanup(func() { _ = conn.Close() })
	check.OK(d.t, conn.SetDeadline(time.Now().Add(check.Hang)))
	_, err = fmt.Fprintf(conn, "PUT %s?in=1h HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx", path(id))
	check.OK(d.t, err)
	bodies := d.server.http.Handler.(*handler).bodies
	check.Until(d.t, "the memory", func() bool {
		free := bodies.TryAcquire(1)
		if free {
			bodies.Release(1)
		}
		return !free
	})
	return conn
}

// TestNoMemoryForABody: the server says that it is busy, and not that the body was slow.
func TestNoMemoryForABody(t *testing.T) {
	t.Parallel()
	small := func(c *Config) { c.MaxBodyBytes = 1000 }
	d := patient(t, small, func(_ *Server, h *handler) { h.room = 200 * time.Millisecond })
	d.occupy("a")
	a := d.do("PUT", path("b")+"?in=1h", "x")
	a.want(t, "no memory", 503, "busy")
	check.Equal(t, "Retry-After", a.header.Get("Retry-After"), "1")
	check.Equal(t, "retry and done", fmt.Sprint(a.body["retry"], a.body["done"]), "trueno")
	check.Equal(t, "detail", a.body["detail"], any("other bodies have the memory of all bodies"))
	if _, there := d.stored("b"); there {
		t.Error("the task is stored")
	}
}

// TestABodyThatWaitedHasItsWholeTime: what it waited for memory doesn't count.
func TestABodyThatWaitedHasItsWholeTime(t *testing.T) {
	t.Parallel()
	small := func(c *Config) { c.MaxBodyBytes = 1000 }
	d := patient(t, small, func(s *Server, _ *handler) { s.http.ReadTimeout = time.Second })
	first := d.occupy("a") // until its body has been slow for a second
	second := make(chan error, 1)
	go func() {
		a, err := d.slowly("b", 1500*time.Millisecond)
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("status %d: %v", a.status, a.body)
		}
		second <- err
	}()
	resp, err := http.ReadResponse(bufio.NewReader(first), nil)
	check.OK(t, err)
	check.OK(t, resp.Body.Close())
	check.Equal(t, "the first", resp.StatusCode, http.StatusRequestTimeout)
	check.OK(t, check.Receive(t, "the second", second))
	s, there := d.stored("b")
	check.Equal(t, "stored", there, true)
	if len(s.Payload) == 0 {
		t.Errorf("the task is %v", producer.Stored(s))
	}
}
