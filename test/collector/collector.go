// Package collector is a server that speaks OTLP, over HTTP and gRPC, for tests. It decodes
// the spans of each export and keeps them. It also records and checks the spans that a test
// makes in its own process.
package collector

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	service "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/duefleet/duefleet/test/check"
)

// Span is a span that was exported.
type Span struct {
	*trace.Span
	// Attributes of the span, and Resource of its process, as texts.
	Attributes, Resource map[string]string
}

// ID returns the ID of a span or trace in hexadecimal.
func ID(id []byte) string { return hex.EncodeToString(id) }

// Collector is a running server.
type Collector struct {
	// URL of OTLP over HTTP, for OTEL_EXPORTER_OTLP_ENDPOINT.
	URL string
	// GRPC is the URL of OTLP over gRPC.
	GRPC string

	mu      sync.Mutex
	spans   []Span
	refuses bool
	exports int
	hanging chan struct{} // nil: it answers
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	over := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(over.Close)
	c.URL = over.URL
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.OK(t, err)
	s := grpc.NewServer()
	service.RegisterTraceServiceServer(s, &rpc{c: c})
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(listener) }()
	t.Cleanup(func() { s.Stop(); <-ended })
	t.Cleanup(c.Answer) // before the servers wait for their calls
	c.GRPC = "http://" + listener.Addr().String()
	return c
}

// Refuse lets the server refuse exports, or take them again.
func (c *Collector) Refuse(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = on
}

// Hang lets exports wait until Answer is called.
func (c *Collector) Hang() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hanging = make(chan struct{})
}

// Answer ends Hang.
func (c *Collector) Answer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hanging != nil {
		close(c.hanging)
		c.hanging = nil
	}
}

// Exports returns how many exports have arrived.
func (c *Collector) Exports() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exports
}

// Spans returns the spans so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// arrived counts an export. It reports whether the server refuses it, or the client has
// given it up.
func (c *Collector) arrived(ctx context.Context) (refused bool) {
	c.mu.Lock()
	c.exports++
	refused, hanging := c.refuses, c.hanging
	c.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-ctx.Done():
			return true
		}
	}
	return refused
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body, err := read(r)
	var request service.ExportTraceServiceRequest
	switch {
	case r.URL.Path != "/v1/traces" || r.Method != http.MethodPost:
		w.WriteHeader(http.StatusNotFound)
	case err != nil || proto.Unmarshal(body, &request) != nil || c.arrived(r.Context()):
		w.WriteHeader(http.StatusBadRequest)
	default:
		c.keep(&request)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}
}

func read(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(r.Body)
	}
	body, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(body)
}

// rpc is the server over gRPC.
type rpc struct {
	service.UnimplementedTraceServiceServer
	c *Collector
}

// Export takes one export.
func (s *rpc) Export(ctx context.Context, r *service.ExportTraceServiceRequest) (*service.ExportTraceServiceResponse,
	error) {
	if s.c.arrived(ctx) {
		return nil, status.Error(codes.InvalidArgument, "refused")
	}
	s.c.keep(r)
	return &service.ExportTraceServiceResponse{}, nil
}

func (c *Collector) keep(r *service.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		process := texts(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{s, texts(s.GetAttributes()), process})
			}
		}
	}
}

// texts returns attributes whose values are texts, numbers or truth values.
func texts(all []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *common.AnyValue_DoubleValue:
			m[a.GetKey()] = strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
		case *common.AnyValue_BoolValue:
			m[a.GetKey()] = strconv.FormatBool(v.BoolValue)
		}
	}
	return m
}
