package consul

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"sync"

	"github.com/hashicorp/consul/api"
)

// refreshingTransport sends each request with the current token and TLS settings.
type refreshingTransport struct {
	token func() string
	tls   func() *tls.Config

	mu        sync.Mutex
	config    *tls.Config // transport's TLS
	transport *http.Transport
}

func newRefreshingTransport(transport *http.Transport, cfg Config) *refreshingTransport {
	r := &refreshingTransport{token: cfg.Token, tls: cfg.TLS, transport: transport}
	if r.token == nil {
		r.token = func() string { return "" }
	}
	if r.tls == nil {
		r.tls = func() *tls.Config { return nil }
	}
	return r
}

// RoundTrip implements http.RoundTripper.
func (r *refreshingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if token := r.token(); token != "" {
		request = request.Clone(request.Context())
		request.Header.Set("X-Consul-Token", token)
	}
	return r.current().RoundTrip(request)
}

// current returns a transport with the current TLS settings. If they have changed,
// connections with the old ones close after their request.
func (r *refreshingTransport) current() *http.Transport {
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

// CloseIdleConnections closes idle connections; http.Client's method of that name calls
// it.
func (r *refreshingTransport) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transport.CloseIdleConnections()
}

// anonymous is the accessor ID of the token for requests without one.
const anonymous = "00000000-0000-0000-0000-000000000002"

// TokenName returns the description of the client's token in Consul, or "token" and its
// accessor if it has none. It returns "" if the client has no token.
func (c *Client) TokenName(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	token, _, err := c.client.ACL().TokenReadSelf((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return "", c.fail(err, "read the token of consul")
	}
	if token.AccessorID == anonymous {
		return "", nil
	}
	return cmp.Or(token.Description, "token "+token.AccessorID), nil
}
