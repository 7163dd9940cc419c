package luascript

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// modePatience bounds how long a server is asked whether it belongs to a Redis Cluster.
const modePatience = time.Second

// Server is the Redis of a caller: one server, sentinels or a Redis Cluster. If options
// have one address, the first call finds out whether it is a cluster's. It is safe for
// concurrent use.
type Server struct {
	// first is the client until it is known whether Redis is a cluster.
	first redis.UniversalClient
	// options are for the client of a cluster.
	options *redis.UniversalOptions
	known   atomic.Pointer[redis.UniversalClient]
}

// Given returns the Server of a caller's client.
func Given(rdb redis.UniversalClient) *Server {
	s := &Server{first: rdb}
	s.known.Store(&rdb)
	return s
}

// Open returns a Server by options. It connects at the first call.
func Open(options *redis.UniversalOptions) *Server {
	own := *options
	own.ContextTimeoutEnabled = true
	s := &Server{first: redis.NewUniversalClient(&own), options: &own}
	if _, one := s.first.(*redis.Client); !one || own.MasterName != "" {
		s.known.Store(&s.first)
	}
	return s
}

// Client returns the client. The first call finds out which kind Redis needs. If Redis
// doesn't answer, it returns a client of one server, and the next call asks again.
func (s *Server) Client(ctx context.Context) redis.UniversalClient {
	_ = s.Find(ctx)
	return s.Known()
}

// Find asks Redis whether it is a cluster, unless that is known. An error means that Redis
// didn't answer.
func (s *Server) Find(ctx context.Context) error {
	if s.known.Load() != nil {
		return nil
	}
	clustered, err := clusterMode(ctx, s.first)
	if err != nil {
		return err
	}
	if !clustered {
		s.known.CompareAndSwap(nil, &s.first)
		return nil
	}
	options := *s.options
	options.IsClusterMode = true
	cluster := redis.NewUniversalClient(&options)
	if !s.known.CompareAndSwap(nil, &cluster) { // another call was faster
		return cluster.Close()
	}
	return nil
}

// Known is like Client, but asks nobody.
func (s *Server) Known() redis.UniversalClient {
	if known := s.known.Load(); known != nil {
		return *known
	}
	return s.first
}

// Close closes the clients.
func (s *Server) Close() error {
	if known := s.Known(); known != s.first {
		return errors.Join(s.first.Close(), known.Close())
	}
	return s.first.Close()
}

// clusterMode reports whether a server belongs to a Redis Cluster. It asks by HELLO, which
// every user may send. A proxy may pass on the reply of a server behind it, so the server
// must answer CLUSTER SLOTS, too. A user without the right to that command gets a cluster's
// client, whose errors name the right. An error means that the server didn't answer.
func clusterMode(ctx context.Context, rdb redis.UniversalClient) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, modePatience)
	defer cancel()
	hello := redis.NewCmd(ctx, "hello")
	_ = rdb.Process(ctx, once{hello})
	if err := hello.Err(); err != nil || !saysCluster(hello.Val()) {
		return false, unlessRefused(err)
	}
	err := rdb.ClusterSlots(ctx).Err()
	return err == nil || hasPrefix(err, "NOPERM"), unlessRefused(err)
}

// unlessRefused returns nil if the server refused the command itself, as in "ERR unknown
// command". It returns other errors, for example about a password.
func unlessRefused(err error) error {
	var answered redis.Error
	if errors.As(err, &answered) && strings.Contains(err.Error(), " command") {
		return nil
	}
	return err
}

// saysCluster reads the reply of HELLO: a map, or a list of names and values in RESP2.
func saysCluster(reply any) bool {
	switch fields := reply.(type) {
	case map[any]any:
		return fields["mode"] == "cluster"
	case []any:
		at := slices.Index(fields, any("mode")) + 1
		return at > 0 && at < len(fields) && fields[at] == "cluster"
	}
	return false
}
