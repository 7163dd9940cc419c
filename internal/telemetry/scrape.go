package telemetry

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sync/singleflight"
)

// scrapes lets concurrent requests for the metrics share one collection. Requests for the
// same form during a collection get the page that it writes. Requests for another form,
// for example without compression, wait for their turn. A finished page is not kept.
//
// So nobody waits longer than one collection, and a page is at most that much older than
// its request. That is far less than the time between two scrapes. Waiting for the next
// collection would take twice as long, for hardly newer numbers.
type scrapes struct {
	collect http.Handler // collects the metrics and writes them in the requested form
	turn    chan struct{}
	pages   singleflight.Group // by requested form
}

func newScrapes(collect http.Handler) *scrapes {
	return &scrapes{collect: collect, turn: make(chan struct{}, 1)}
}

// ServeHTTP implements http.Handler.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	form := strings.Join([]string{req.URL.RawQuery, req.Header.Get("Accept"), req.Header.Get("Accept-Encoding")}, "\n")
	made, _, _ := s.pages.Do(form, func() (any, error) { return s.make(req), nil })
	p := made.(*page)
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Length", strconv.Itoa(p.body.Len()))
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body.Bytes()) // the client hung up
}

func (s *scrapes) make(req *http.Request) *page {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	p := &page{header: http.Header{}, status: http.StatusOK}
	s.collect.ServeHTTP(p, req)
	return p
}

// page is a complete answer, sent to several requests. Once made it is read only.
type page struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(status int) { p.status = status }

// Write implements http.ResponseWriter.
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }
