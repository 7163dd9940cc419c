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

// Hazard is a way in which Redis is set to lose tasks that it acknowledged.
type Hazard string

const (
	// Eviction is of keys at maxmemory, in place of refusing new tasks.
	Eviction Hazard = "eviction"
	// Persistence is missing: no append-only file is kept.
	Persistence Hazard = "persistence"
)

// Hazards returns what is known of each: which servers are set so, and the command
// that mends it; "" if none is. What Redis doesn't tell is left out, as where a
// service keeps INFO or a line of it to itself. The error is that of a server that did
// not answer, or of who may not ask (see Denied).
func (s *Store) Hazards(ctx context.Context) (map[Hazard]string, error) {
	var mu sync.Mutex
	found := map[Hazard][]string{}
	err := s.eachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		text, err := server.Info(ctx, "memory", "persistence").Result()
		if err != nil {
			return fmt.Errorf("ask %s how it keeps tasks: %w", server.Options().Addr, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for hazard, why := range hazardsOf(text) {
			if why != "" {
				why = server.Options().Addr + " " + why
			}
			found[hazard] = append(found[hazard], why)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	known := map[Hazard]string{}
	for hazard, all := range found {
		slices.Sort(all)
		all = slices.DeleteFunc(all, func(why string) bool { return why == "" })
		known[hazard] = strings.Join(all, "; ")
	}
	return known, nil
}

// eachMaster calls do for each server that holds shards, of a cluster for several at
// the same time.
func (s *Store) eachMaster(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		return do(ctx, rdb)
	case *redis.ClusterClient:
		return rdb.ForEachMaster(ctx, do)
	}
	return errors.New("not known which servers a client of this type has")
}

// hazardsOf reads what INFO tells of one server: "" for what is as it should be.
func hazardsOf(text string) map[Hazard]string {
	info := ParseInfo(text)
	known := map[Hazard]string{}
	policy, told := info["maxmemory_policy"]
	limit, limited := info["maxmemory"]
	switch {
	case !told || !limited:
	case policy == "noeviction" || limit == "0":
		known[Eviction] = ""
	case strings.HasPrefix(policy, "volatile-"): // tasks never expire
		known[Eviction] = "evicts at maxmemory what consumers remember, so that tasks are repeated (CONFIG SET maxmemory-policy noeviction in place of " + policy + ")"
	default:
		known[Eviction] = "evicts tasks at maxmemory (CONFIG SET maxmemory-policy noeviction in place of " + policy + ")"
	}
	switch info["aof_enabled"] {
	case "":
	case "0":
		known[Persistence] = "keeps no append-only file, and a restart loses what came since the last snapshot, if there is one (CONFIG SET appendonly yes)"
	default:
		known[Persistence] = ""
	}
	return known
}

// ParseInfo reads the lines of INFO by their names.
func ParseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields
}
