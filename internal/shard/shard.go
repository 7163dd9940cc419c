// Package shard keeps one topic's tasks in M sorted sets in Redis: the keys,
// the placement of an ID, one Lua file a script and one Go method a script.
//
// A task is a member of its shard's sorted set and a record in the hash beside
// it. The score says where it stands:
//
//	0 <= score < +inf   waiting: due, or to be tried again, at that Redis ms
//	score < 0           leased until -score; the score is also the lease's token
//	score = +inf        parked
//
// Scripts on one shard are atomic, nothing across shards is. docs/protocol.md
// says how callers combine them.
package shard

import (
	"embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

//go:embed scripts/*.lua
var sources embed.FS

// Store is duefleet's keys in one Redis, all under one prefix.
type Store struct {
	rdb     redis.UniversalClient
	prefix  string
	scripts map[string]script
	clock   clock
	// replicas that are waited for; see AwaitReplicas.
	replicas int

	routing sync.Mutex
	routers map[string]*Router // by topic
}

// New returns the store under prefix, which must not hold braces: they would
// decide which slot of a Redis Cluster a key is in. New doesn't talk to Redis.
func New(rdb redis.UniversalClient, prefix string) (*Store, error) {
	if strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("prefix %q: must not hold braces", prefix)
	}
	s := &Store{rdb: rdb, prefix: prefix, scripts: map[string]script{}, routers: map[string]*Router{}}
	for _, name := range scriptFiles() {
		text, err := Script(name)
		if err != nil {
			return nil, err
		}
		s.scripts[name] = script{redis.NewScript(text), text}
	}
	return s, nil
}

// Open is New, and AwaitReplicas, on the caller's client or, where that is nil, on
// one of its own by the options, which closing closes.
func Open(rdb redis.UniversalClient, options *redis.UniversalOptions, prefix string, replicas int) (s *Store, closing func() error, err error) {
	closing = func() error { return nil }
	if rdb == nil {
		if err := checkAddrs(options.Addrs); err != nil {
			return nil, nil, err
		}
		own := Dialing(options)
		own.ContextTimeoutEnabled = true
		rdb = redis.NewUniversalClient(own)
		closing = rdb.Close
	}
	if s, err = New(rdb, prefix); err == nil {
		err = s.AwaitReplicas(replicas)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closing())
	}
	return s, closing, nil
}

// checkAddrs refuses URLs, which the client would take for a host and quote in its
// errors, with the password that may be in them.
func checkAddrs(addrs []string) error {
	for i, addr := range addrs {
		if strings.Contains(addr, "://") || strings.Contains(addr, "@") {
			return fmt.Errorf("address %d of Redis: must be host:port; it is a URL: user, password and TLS are options of their own", i+1)
		}
	}
	return nil
}

// scriptFiles are those of all scripts, without the libraries.
func scriptFiles() []string {
	files, _ := sources.ReadDir("scripts") // it is compiled in
	var names []string
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".lua"); !strings.HasPrefix(name, "lib_") {
			names = append(names, name)
		}
	}
	return names
}

// usesLine names the libraries of a script, in the order they are put in front.
var usesLine = regexp.MustCompile(`(?m)^-- uses: (.*)$`)

// Script returns the whole text of a script, its libraries included, as it is
// sent to Redis.
func Script(name string) (string, error) {
	body, err := sources.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		return "", fmt.Errorf("script %s: %w", name, err)
	}
	first, rest, _ := strings.Cut(string(body), "\n")
	var text strings.Builder
	text.WriteString(first + "\n")
	if uses := usesLine.FindStringSubmatch(rest); uses != nil {
		for lib := range strings.FieldsSeq(uses[1]) {
			code, err := sources.ReadFile("scripts/lib_" + lib + ".lua")
			if err != nil {
				return "", fmt.Errorf("script %s: library %s: %w", name, lib, err)
			}
			text.Write(code)
		}
	}
	text.WriteString(rest)
	return text.String(), nil
}

// MovedError says that a shard has seen a newer placement than the caller's:
// nothing was done there.
type MovedError struct {
	// Placement is the one the shard has seen.
	Placement Placement
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("placement changed to %q", e.Placement)
}

// ErrLate says that a script reached Redis after the time its caller set for
// it: nothing was done.
var ErrLate = errors.New("reached Redis too late to be carried out")

// answer is the reply of a script that knows a placement, after its status; with
// a *ReplicasError there is one too.
func answer(cmd *redis.Cmd) (status string, rest []any, err error) {
	reply, err := cmd.Slice()
	switch {
	case errors.Is(err, task.ErrReplicas):
		reply, _ = cmd.Val().([]any)
	case err != nil:
		return "", nil, redisError(err)
	}
	if len(reply) == 0 {
		return "", nil, errors.New("empty answer of a script")
	}
	status, _ = reply[0].(string)
	switch status {
	case "ok", "none", "old":
		return status, reply[1:], err
	case "late":
		return "", nil, ErrLate
	case "moved":
		text, _ := reply[1].(string)
		p, err := parsePlacement(text)
		if err != nil {
			return "", nil, err
		}
		return "", nil, &MovedError{p}
	}
	return "", nil, fmt.Errorf("unknown answer of a script: %q", status)
}

// redisError turns Redis's refusal for lack of memory into task.ErrRedisFull.
func redisError(err error) error {
	if redis.HasErrorPrefix(err, "OOM") {
		return fmt.Errorf("%w: raise maxmemory or let the backlog drain", task.ErrRedisFull)
	}
	return err
}
