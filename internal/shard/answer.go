package shard

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/duefleet/duefleet/internal/luascript"
)

//go:embed scripts/*.lua
var sources embed.FS

// scriptTexts returns the texts of all scripts by name.
func scriptTexts() (map[string]string, error) {
	files, err := sources.ReadDir("scripts")
	texts := make(map[string]string, len(files))
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".lua")
		if strings.HasPrefix(name, "lib_") {
			continue
		}
		if texts[name], err = Script(name); err != nil {
			return nil, err
		}
	}
	return texts, err
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

// ErrLate says that a script reached Redis after its deadline, and did nothing.
var ErrLate = errors.New("reached Redis too late to be carried out")

// answer returns the status of a reply that begins with one, and the reader of the rest.
// With a *ReplicasError there is a reply too.
func answer(reply luascript.Reply) (status string, rest *luascript.Values, err error) {
	rest = reply.Values()
	status = rest.Text()
	if err := rest.Err(); err != nil {
		return "", rest, err
	}
	switch status {
	case "ok", "none", "old":
		return status, rest, reply.Err()
	case "late":
		return "", rest, ErrLate
	case "superseded":
		return "", rest, ErrSuperseded
	case "stale":
		return "", rest, ErrStale
	case "unraised":
		return "", rest, ErrUnraised
	case "moved":
		p, err := parsePlacement(rest.Text())
		if err = cmp.Or(rest.Err(), err); err != nil {
			return "", rest, err
		}
		return "", rest, &MovedError{p}
	}
	return "", rest, fmt.Errorf("unknown answer of a script: %q", status)
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
