package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
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

// Memory is the memory of a server, in bytes.
type Memory struct {
	Addr string
	// Used counts for maxmemory. Max is maxmemory; 0 means that there is no limit.
	Used, Max int64
	// Evicts: at maxmemory the server removes keys instead of refusing new tasks.
	Evicts bool
}

// Share returns Used as a share of Max; 0 without a limit.
func (m Memory) Share() float64 {
	if m.Max == 0 {
		return 0
	}
	return float64(m.Used) / float64(m.Max)
}

// Inspection has the settings and the memory of the servers that hold shards.
type Inspection struct {
	// Warnings has a text for each setting: the servers that have it, and the command that
	// fixes it; "" if none has it.
	Warnings map[Warning]string
	// Memory has the servers, the fullest first.
	Memory []Memory
}

// Inspect asks the servers for their settings and their memory. It leaves out
// everything that Redis doesn't tell, as where a service hides INFO or a line of it. The error is about a server that
// did not answer, or that refuses this user (see luascript.Denied).
func (r *Registry) Inspect(ctx context.Context) (Inspection, error) {
	var mu sync.Mutex
	found, all := map[Warning][]string{}, Inspection{Warnings: map[Warning]string{}}
	err := r.eachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
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
		if m, told := memoryOf(text); told {
			m.Addr = server.Options().Addr
			all.Memory = append(all.Memory, m)
		}
		return nil
	})
	if err != nil {
		return Inspection{}, err
	}
	for warning, why := range found {
		slices.Sort(why)
		why = slices.DeleteFunc(why, func(text string) bool { return text == "" })
		all.Warnings[warning] = strings.Join(why, "; ")
	}
	slices.SortFunc(all.Memory, func(a, b Memory) int {
		return cmp.Or(cmp.Compare(b.Share(), a.Share()), cmp.Compare(b.Used, a.Used))
	})
	return all, nil
}

// eachMaster calls do for each server that holds shards. In a Redis Cluster it calls do
// for several of them at the same time.
func (r *Registry) eachMaster(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	switch rdb := r.client(ctx).(type) {
	case *redis.Client:
		return do(ctx, rdb)
	case *redis.ClusterClient:
		return rdb.ForEachMaster(ctx, do)
	}
	return errors.New("can't list the servers of a client of this type")
}

// Replica is a server that takes no writes, and its master.
type Replica struct{ Addr, Master string }

// String says so, for operators.
func (r Replica) String() string {
	return r.Addr + " is a replica of " + r.Master + ", and takes no writes"
}

// ReplicaOf returns the replica that INFO of the server at addr shows. It returns false for a
// master.
func ReplicaOf(addr string, info map[string]string) (Replica, bool) {
	return Replica{addr, net.JoinHostPort(info["master_host"], info["master_port"])}, info["role"] == "slave"
}

// Replicas returns the servers that take no writes, although keys are read from them.
func (r *Registry) Replicas(ctx context.Context) (found []Replica, err error) {
	var mu sync.Mutex
	err = r.eachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		text, err := server.Info(ctx, "replication").Result()
		if replica, yes := ReplicaOf(server.Options().Addr, ParseInfo(text)); err == nil && yes {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, replica)
		}
		return err
	})
	return found, wrapIf(err, "ask Redis for its role")
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

// memoryOf reads the memory in INFO of one server.
func memoryOf(text string) (m Memory, told bool) {
	info := ParseInfo(text)
	used, err := strconv.ParseInt(info["used_memory"], 10, 64)
	most, errMax := strconv.ParseInt(info["maxmemory"], 10, 64)
	uncounted, _ := strconv.ParseInt(info["mem_not_counted_for_evict"], 10, 64) // absent: 0
	policy, known := info["maxmemory_policy"]
	return Memory{Used: used - uncounted, Max: most, Evicts: known && policy != "noeviction"}, err == nil && errMax == nil
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
