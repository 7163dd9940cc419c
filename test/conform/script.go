package conform

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/duefleet/duefleet/docs/protocol"
)

// keysLine matches the line of a script's header with its keys.
var keysLine = regexp.MustCompile(`(?m)^-- KEYS  (.*)$`)

// script is a script that producers send.
type script struct {
	name string
	keys []string // their kinds: due, task, ...
	args []string // names of the arguments, with the ones of the first task
	text string
}

// argNames returns the names of ARGV from the scripts' headers.
func argNames(name string) []string {
	switch name {
	case "put":
		return []string{"placement", "op", "not_after", "mode", "moving", "id", "when", "body"}
	case "delete":
		return []string{"placement", "not_after", "handled", "id"}
	case "reschedule":
		return []string{"placement", "op", "not_after", "id", "when", "moving", "fallback"}
	case "fence", "read":
		return []string{"placement", "id"}
	case "note":
		return []string{"at", "due", "keep"}
	}
	return nil
}

// published returns the scripts in docs/protocol, by their SHA-1 in Redis.
func published() (map[string]script, error) {
	files, err := protocol.Files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	all := map[string]script{}
	for _, f := range files {
		name, isScript := strings.CutSuffix(f.Name(), ".lua")
		if !isScript {
			continue
		}
		text, err := protocol.Files.ReadFile(f.Name())
		if err != nil {
			return nil, err
		}
		header := keysLine.FindSubmatch(text)
		if header == nil {
			return nil, fmt.Errorf("script %s: no line in its header names the keys", name)
		}
		all[hash(string(text))] = script{name, strings.Split(string(header[1]), ", "), argNames(name), string(text)}
	}
	return all, nil
}

func hash(text string) string {
	sum := sha1.Sum([]byte(text)) // Redis identifies scripts by it
	return hex.EncodeToString(sum[:])
}

// sent is one script that reached the proxy.
type sent struct {
	script
	keys  []string
	args  []string
	shard int   // -1: none
	at    int64 // Redis's time of arrival in ms

	answer string        // Redis's answer; valid once done is closed
	done   chan struct{} // closed after the answer
}

// arg returns an argument by its name, or "".
func (s *sent) arg(name string) string {
	if n := slices.Index(s.script.args, name); n >= 0 && n < len(s.args) {
		return s.args[n]
	}
	return ""
}

// notAfter returns the Redis time in ms after which the script does nothing, or 0 if it
// has none.
func (s *sent) notAfter() int64 {
	ms, _ := strconv.ParseInt(s.arg("not_after"), 10, 64) // a wrong number has been answered with an error
	return ms
}

// asks reports whether it is a note that only reads.
func (s *sent) asks() bool { return s.name == "note" && s.arg("at") == "" }

// reply records the script's answer, once.
func (s *sent) reply(answer string) {
	s.answer = answer
	close(s.done)
}

// keysOf returns a script's keys for a shard, or for an ID.
func keysOf(s script, prefix, place string) []string {
	keys := make([]string, len(s.keys))
	for i, kind := range s.keys {
		keys[i] = prefix + ":" + kind + ":{" + place + "}"
	}
	return keys
}

// place returns the text between the braces of a key.
func place(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	place, _, _ := cutLast(rest, "}")
	return place
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
