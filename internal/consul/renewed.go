package consul

import (
	"crypto/tls"
	"net/http"
	"sync"
)

// renewed sends each request with the current token and TLS.
type renewed struct {
	token func() string
	tls   func() *tls.Config

	mu        sync.Mutex
	config    *tls.Config // transport's TLS
	transport *http.Transport
}

func newRenewed(transport *http.Transport, cfg Config) *renewed {
	r := &renewed{token: cfg.Token, tls: cfg.TLS, transport: transport}
	if r.token == nil {
		r.token = func() string { return "" }
	}
	if r.tls == nil {
		r.tls = func() *tls.Config { return nil }
	}
	return r
}

// RoundTrip implements http.RoundTripper.
func (r *renewed) RoundTrip(request *http.Request) (*http.Response, error) {
	if token := r.token(); token != "" {
		request = request.Clone(request.Context())
		request.Header.Set("X-Consul-Token", token)
	}
	return r.current().RoundTrip(request)
}

// current returns a transport with the current TLS. Connections of the previous transport
// close when their request is over.
func (r *renewed) current() *http.Transport {
	r.mu.Lock()
	defer r.mu.Unlock()
	if config := r.tls(); config != r.config {
		old := r.transport
		r.transport = old.Clone()
		r.transport.TLSClientConfig, r.config = config, config
		old.CloseIdleConnections()
	}
	return r.transport
}

// CloseIdleConnections does what http.Client calls it for.
func (r *renewed) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transport.CloseIdleConnections()
}
