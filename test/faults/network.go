package faults

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Local lets the system choose the port of a Proxy. An outgoing connection may get that port
// while the proxy is stopped.
const Local = "127.0.0.1:0"

// Proxy runs a proxy that listens at an address, in front of the server at upstream. It
// stops when the test ends.
func Proxy(t testing.TB, listen, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := toxiproxy.NewProxy(server, upstream, listen, upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// Toxic adds a fault to a proxy, downstream or upstream. See toxiproxy's README for kinds
// and attributes.
func Toxic(t testing.TB, p *toxiproxy.Proxy, name, kind, stream string, attributes map[string]any) {
	t.Helper()
	toxic, err := json.Marshal(map[string]any{"name": name, "type": kind, "stream": stream, "attributes": attributes})
	if err == nil {
		_, err = p.Toxics.AddToxicJson(bytes.NewReader(toxic))
	}
	if err != nil {
		t.Fatal(err)
	}
}
