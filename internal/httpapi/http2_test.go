package httpapi

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// openTLS starts a server with TLS, whose client speaks HTTP/2.
func openTLS(t *testing.T, pause time.Duration, change func(*Config)) (*door, *tls.Config) {
	t.Helper()
	cert, pool := servertest.Certificate(t)
	d := patience(t, pause, time.Hour, func(c *Config) {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
		change(c)
	})
	trust := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	d.url = "https://" + d.server.Addr()
	d.client.Transport = &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}
	return d, trust
}

// hanging is a library whose Get waits for a sign.
type hanging struct {
	Tasks
	goOn chan struct{}
}

func (h hanging) Get(ctx context.Context, topic, id string) (producer.Stored, error) {
	<-h.goOn
	return h.Tasks.Get(ctx, topic, id)
}

// TestAConnectionOfHTTP2HasAHundredRequests at a time; further ones wait. So the number of
// connections limits the number of requests.
func TestAConnectionOfHTTP2HasAHundredRequests(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	d, trust := openTLS(t, lineTimeout, func(c *Config) { c.Tasks = hanging{c.Tasks, goOn} })
	const settings, streams = 4, 3 // a frame's type, and a setting's number
	trust = trust.Clone()
	trust.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", d.server.Addr(), trust)
	check.OK(t, err)
	defer conn.Close()
	check.OK(t, conn.SetDeadline(time.Now().Add(check.Hang)))
	_, err = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	check.OK(t, err)
	head := make([]byte, 9)
	_, err = io.ReadFull(conn, head)
	check.OK(t, err)
	check.Equal(t, "the first frame", int(head[3]), settings)
	frame := make([]byte, int(head[1])<<8+int(head[2]))
	_, err = io.ReadFull(conn, frame)
	check.OK(t, err)
	limit := uint32(0)
	for ; len(frame) >= 6; frame = frame[6:] {
		if binary.BigEndian.Uint16(frame) == streams {
			limit = binary.BigEndian.Uint32(frame[2:])
		}
	}
	check.Equal(t, "requests at a time", limit, 100)
	check.OK(t, conn.Close())

	const requests = 150
	done := make(chan error, requests)
	for range requests {
		go func() {
			a, err := d.try(http.MethodGet, path("none"), nil)
			if err == nil && a.status != http.StatusNotFound {
				err = fmt.Errorf("status %d: %v", a.status, a.body)
			}
			done <- err
		}()
	}
	check.Until(t, "requests", func() bool { return d.server.active.Load() >= 100 })
	close(goOn)
	for range requests {
		check.OK(t, check.Receive(t, "an answer", done))
	}
}

// TestHTTP2 serves tasks and batches, also one with a pause between two answers. A slow batch ends.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	const pause = 3 * time.Second
	d, _ := openTLS(t, pause, func(*Config) {})
	resp, err := d.client.Get(d.url + documentPath)
	check.OK(t, err)
	check.OK(t, resp.Body.Close())
	check.Equal(t, "protocol", resp.Proto, "HTTP/2.0")
	d.do("PUT", path("a")+"?in=1h", "x").want(t, "schedule", 200, nil)
	answers, err := d.batch(strings.NewReader(scheduling(50)))
	check.OK(t, err)
	check.Equal(t, "answers", fmt.Sprint(d.agree(answers, numbered)), "map[200 <nil> <nil>:50]")
	body, lines := io.Pipe()
	defer lines.Close()
	go func() {
		const line = `{"verb":"get","id":"none"}` + "\n"
		_, _ = io.WriteString(lines, line)
		ctx, end := context.WithTimeout(t.Context(), pause*3/2)
		defer end()
		drip(ctx, lines, " ")
		_, _ = io.WriteString(lines, line)
	}()
	answers, err = d.batch(body)
	check.OK(t, err)
	check.Equal(t, "answers", len(answers), 3)
	for n, want := range []string{"404 not_found", "404 not_found", "408 slow"} {
		check.Equal(t, "answer", fmt.Sprint(answers[n]["status"], " ", answers[n]["code"]), want)
	}
}
