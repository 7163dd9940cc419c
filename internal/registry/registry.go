// Package registry keeps in Redis what is about a whole fleet, and about no shard. That is
// the scanners that live and the identity of the data. It is also the known topics, with
// their documents, pauses and rates, and the record of operators' changes. It reads the
// settings and the clocks of the servers.
package registry

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Registry gives access to the keys of one fleet. It is safe for concurrent use.
type Registry struct {
	server  *luascript.Server
	scripts *luascript.Client
	prefix  string
}

// New returns the registry under prefix. scripts has the scripts of internal/shard, and sends to
// server. New itself sends nothing to Redis.
func New(server *luascript.Server, scripts *luascript.Client, prefix string) *Registry {
	return &Registry{server: server, scripts: scripts, prefix: prefix}
}

func (r *Registry) client(ctx context.Context) redis.UniversalClient { return r.server.Client(ctx) }

// key names one key of the fleet.
func (r *Registry) key(kind string) string { return r.prefix + ":" + kind }

func wrapIf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
