// Package member runs a scanner within a test's own process. It is not part of
// package fleet, which needs none of the scanner's own packages.
package member

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/scanner"
)

// Run is a scanner within this process, for tests of what lies behind one: it
// serves the topics of a configuration until ctx ends.
func Run(ctx context.Context, path string) error {
	cfg, err := config.Load(path, []string{"DUEFLEET_ADMIN_LISTEN=127.0.0.1:0"})
	if err != nil {
		return err
	}
	options, err := cfg.Redis.Options()
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true
	rdb := redis.NewUniversalClient(options)
	defer rdb.Close()
	member, err := scanner.New(scanner.Config{
		Settings: cfg, Source: config.NewFile(path, nil), Redis: rdb,
		Instance: scanner.Instance(), Version: "test", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return member.Run(ctx)
}
