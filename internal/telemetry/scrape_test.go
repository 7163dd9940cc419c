package telemetry

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
)

// collections is a metric that counts its collections. Each collection waits for letGo.
type collections struct {
	begun atomic.Int32
	letGo chan struct{}
}

func newCollections(reg prometheus.Registerer) *collections {
	c := &collections{letGo: make(chan struct{})}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "collections"}, func() float64 {
		n := c.begun.Add(1)
		<-c.letGo
		return float64(n)
	}))
	return c
}

// scrape requests the metrics in a form. It counts the pages with "collections n" by n.
func (c *collections) scrape(t *testing.T, s *Server, pages *sync.Map, form http.Header) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	req.Header = form
	rec := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(rec, req)
	_, rest, _ := strings.Cut(rec.Body.String(), "\ncollections ")
	n, _, _ := strings.Cut(rest, "\n")
	if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") == "" {
		t.Errorf("got %d, %v", rec.Code, rec.Header())
	}
	seen, _ := pages.LoadOrStore(n, new(atomic.Int32))
	seen.(*atomic.Int32).Add(1)
}

func counted(pages *sync.Map, n string) int32 {
	v, ok := pages.Load(n)
	if !ok {
		return 0
	}
	return v.(*atomic.Int32).Load()
}

func TestScrapesAtOnceShareOneCollection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		c := newCollections(reg)
		s := newServer(t, ServerConfig{Registry: reg})
		var pages sync.Map
		const many = 60
		for range many {
			go c.scrape(t, s, &pages, http.Header{})
		}
		synctest.Wait()
		if n := c.begun.Load(); n != 1 {
			t.Errorf("%d collections for %d scrapes at once, want 1", n, many)
		}
		close(c.letGo)
		synctest.Wait()
		if n := counted(&pages, "1"); n != many {
			t.Errorf("%d of %d scrapes got the page", n, many)
		}
		c.scrape(t, s, &pages, http.Header{})
		if n := counted(&pages, "2"); n != 1 {
			t.Error("a scrape after that got the page of the collection before")
		}
	})
}

func TestScrapesInSeveralFormsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		c := newCollections(reg)
		s := newServer(t, ServerConfig{Registry: reg})
		var pages sync.Map
		forms := []http.Header{
			{}, {"Accept-Encoding": {"gzip"}},
			{"Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}},
		}
		for _, form := range forms {
			for range 10 {
				go c.scrape(t, s, &pages, form)
			}
		}
		for i := range forms {
			synctest.Wait()
			if n := c.begun.Load(); int(n) != i+1 {
				t.Errorf("%d collections have begun, want %d: one at a time, one for each form", n, i+1)
			}
			c.letGo <- struct{}{}
		}
		synctest.Wait()
	})
}
