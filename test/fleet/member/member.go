// Package member runs a scanner, and reads a fleet's status, within a test's own process.
// It is separate from package fleet, which doesn't import the scanner's packages.
package member

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/scanner"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/fleet"
)

// Run runs a scanner in this process, for tests of its internals. It serves the topics of
// a configuration until ctx ends.
func Run(ctx context.Context, path string) error {
	return RunWith(ctx, path, []string{"DUEFLEET_ADMIN_LISTEN=127.0.0.1:0"}, slog.New(slog.DiscardHandler),
		func(redis.UniversalClient) {})
}

// RunWith is Run with an environment and a log. prepare gets the scanner's client of Redis
// before its first request.
func RunWith(ctx context.Context, path string, environ []string, log *slog.Logger,
	prepare func(redis.UniversalClient)) error {
	cfg, err := config.Load(path, environ)
	if err != nil {
		return err
	}
	options, err := connect.Redis(cfg.Redis, nil)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true
	rdb := redis.NewUniversalClient(options)
	defer rdb.Close()
	prepare(rdb)
	store, _, err := shard.Open(rdb, nil, cfg.Redis.Prefix, cfg.Redis.MinReplicas)
	if err != nil {
		return err
	}
	member, err := scanner.New(scanner.Config{
		Settings: cfg, Source: config.NewFile(path, nil), Store: store,
		Instance: scanner.Instance(), Version: "test", Log: log,
	})
	if err != nil {
		return err
	}
	return member.Run(ctx)
}

// Status returns what `scanner status -o json` prints for the fleet under a prefix,
// without starting a process.
func Status(ctx context.Context, rdb redis.UniversalClient, prefix string) (fleet.Status, error) {
	var s fleet.Status
	store, err := shard.New(rdb, prefix)
	if err != nil {
		return s, err
	}
	status, err := admin.ReadStatus(ctx, store, "")
	if err != nil {
		return s, err
	}
	text, err := json.Marshal(status)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}
