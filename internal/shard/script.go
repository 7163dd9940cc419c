package shard

import (
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

// scriptFiles returns the names of all scripts, without the libraries.
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

// usesLine names a script's libraries, in the order in which they go in front of it.
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

// MovedError says that a shard has seen a newer placement than the caller's, and did
// nothing.
type MovedError struct {
	// Placement is the one the shard has seen.
	Placement Placement
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("placement changed to %q", e.Placement)
}

// ErrLate says that a script reached Redis after its not-after time, and did nothing.
var ErrLate = errors.New("reached Redis too late to be carried out")

// answer returns the reply of a script that knows a placement: its status, and what
// follows it. There is a reply with a *ReplicasError too.
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

// redisError turns Redis's out-of-memory error into task.ErrRedisFull.
func redisError(err error) error {
	if redis.HasErrorPrefix(err, "OOM") {
		return fmt.Errorf("%w: raise maxmemory or let the backlog drain", task.ErrRedisFull)
	}
	return err
}

func oneIf(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func anys(ids []string) []any {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	return args
}

func wrapIf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
