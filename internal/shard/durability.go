package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Warning is a setting of Redis that may lose tasks that Redis acknowledged.
type Warning string

const (
	// Eviction: Redis removes keys at maxmemory instead of refusing new tasks.
	Eviction Warning = "eviction"
	// Persistence: Redis keeps no append-only file.
	Persistence Warning = "persistence"
)

// Warnings returns a text for each setting: the servers that have it, and the command that
// fixes it; "" if none has it. A setting that Redis doesn't tell is left out, as where a
// service hides INFO or a line of it. The error is about a server that did not answer, or
// that refuses this user (see Denied).
func (s *Store) Warnings(ctx context.Context) (map[Warning]string, error) {
	var mu sync.Mutex
	found := map[Warning][]string{}
	err := s.eachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		text, err := server.Info(ctx, "memory", "persistence").Result()
		if err != nil {
			return fmt.Errorf("ask %s for its memory and persistence: %w", server.Options().Addr, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for warning, why := range warningsOf(text) {
			if why != "" {
				why = server.Options().Addr + " " + why
			}
			found[warning] = append(found[warning], why)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	known := map[Warning]string{}
	for warning, all := range found {
		slices.Sort(all)
		all = slices.DeleteFunc(all, func(why string) bool { return why == "" })
		known[warning] = strings.Join(all, "; ")
	}
	return known, nil
}

// eachMaster calls do for each server that holds shards. In a Redis Cluster it calls do
// for several of them at the same time.
func (s *Store) eachMaster(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	switch rdb := s.Client(ctx).(type) {
	case *redis.Client:
		return do(ctx, rdb)
	case *redis.ClusterClient:
		return rdb.ForEachMaster(ctx, do)
	}
	return errors.New("can't list the servers of a client of this type")
}

// warningsOf reads INFO of one server. The text is "" for a safe setting.
func warningsOf(text string) map[Warning]string {
	info := ParseInfo(text)
	known := map[Warning]string{}
	policy, told := info["maxmemory_policy"]
	limit, limited := info["maxmemory"]
	switch {
	case !told || !limited:
	case policy == "noeviction" || limit == "0":
		known[Eviction] = ""
	case strings.HasPrefix(policy, "volatile-"): // tasks never expire
		known[Eviction] = "evicts delivery histories at maxmemory, so that tasks are repeated " +
			"(CONFIG SET maxmemory-policy noeviction in place of " + policy + ")"
	default:
		known[Eviction] = "evicts tasks at maxmemory (CONFIG SET maxmemory-policy noeviction in place of " + policy + ")"
	}
	switch info["aof_enabled"] {
	case "":
	case "0":
		known[Persistence] = "keeps no append-only file, and a restart loses what came since the last snapshot, if there " +
			"is one (CONFIG SET appendonly yes)"
	default:
		known[Persistence] = ""
	}
	return known
}

// ParseInfo returns the fields of INFO by their names.
func ParseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields
}
