package telemetry

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sync/singleflight"
)

// scrapes answers any number of requests for the metrics at the cost of one: there is
// one collection at a time, written down once, and whoever asks for the same while it
// is under way gets that page. So nobody waits for longer than a collection takes, and
// a page is that much older than its request at most, which is far less than what lies
// between two scrapes; waiting for the next one would take twice as long for numbers
// that are hardly newer. Who asks for another form of them, as without compression,
// waits for a turn. A page that is over is not kept.
type scrapes struct {
	collect http.Handler // collects the metrics and writes them in the form asked for
	turn    chan struct{}
	pages   singleflight.Group // by what is asked for
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

// page is an answer as a whole, to be sent to several. It is read only, once made.
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
