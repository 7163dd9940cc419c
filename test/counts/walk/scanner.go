package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/scanner"
	"github.com/duefleet/duefleet/internal/shard"
)

// runScanner runs a scanner in this process with a hook on its client, until ctx ends.
func runScanner(ctx context.Context, path string, hook redis.Hook) error {
	cfg, err := config.Load(path, []string{"DUEFLEET_ADMIN_LISTEN=127.0.0.1:0"})
	if err != nil {
		return err
	}
	options, err := cfg.Redis.Options(nil)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true
	rdb := redis.NewUniversalClient(options)
	defer rdb.Close()
	rdb.AddHook(hook)
	store, err := shard.New(rdb, cfg.Redis.Prefix)
	if err != nil {
		return err
	}
	member, err := scanner.New(scanner.Config{
		Settings: cfg, Source: config.NewFile(path, nil), Store: store, Instance: scanner.Instance(), Version: "walk",
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	return member.Run(ctx)
}
