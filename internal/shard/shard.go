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
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
)

//go:embed scripts/*.lua
var sources embed.FS

// Store is duefleet's keys in one Redis, all under one prefix.
type Store struct {
	rdb     redis.UniversalClient
	prefix  string
	scripts map[string]*redis.Script
	clock   clock
}

// New returns the store under prefix. It talks to Redis only when asked to.
func New(rdb redis.UniversalClient, prefix string) (*Store, error) {
	s := &Store{rdb: rdb, prefix: prefix, scripts: map[string]*redis.Script{}}
	files, err := sources.ReadDir("scripts")
	if err != nil {
		return nil, fmt.Errorf("read scripts: %w", err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".lua")
		if strings.HasPrefix(name, "lib_") {
			continue
		}
		text, err := Script(name)
		if err != nil {
			return nil, err
		}
		s.scripts[name] = redis.NewScript(text)
	}
	return s, nil
}

// usesLine names the libraries of a script, in the order they are put in front.
var usesLine = regexp.MustCompile(`(?m)^-- uses: (.*)$`) //nolint:gochecknoglobals // a constant in all but syntax

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

// call is one execution of a script on one shard.
type call struct {
	script string
	keys   []string
	args   []any
}

// run executes one script.
func (s *Store) run(ctx context.Context, c call) *redis.Cmd {
	return s.scripts[c.script].Run(ctx, s.rdb, c.keys, c.args...)
}

// runAll executes scripts of several shards in one pipeline. A shard's server
// that does not know a script yet gets its text in a second try: inside a
// pipeline go-redis can't fall back by itself.
func (s *Store) runAll(ctx context.Context, calls []call) []*redis.Cmd {
	if len(calls) == 1 {
		return []*redis.Cmd{s.run(ctx, calls[0])}
	}
	cmds := make([]*redis.Cmd, len(calls))
	pipe := s.rdb.Pipeline()
	for i, c := range calls {
		cmds[i] = s.scripts[c.script].EvalSha(ctx, pipe, c.keys, c.args...)
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	for i, c := range calls {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			cmds[i] = s.run(ctx, c)
		}
	}
	return cmds
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

// answer is the reply of a script that knows a placement, after its status.
func answer(cmd *redis.Cmd) (status string, rest []any, err error) {
	reply, err := cmd.Slice()
	if err != nil {
		return "", nil, redisError(err)
	}
	if len(reply) == 0 {
		return "", nil, errors.New("empty answer of a script")
	}
	status, _ = reply[0].(string)
	switch status {
	case "ok", "none":
		return status, reply[1:], nil
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
