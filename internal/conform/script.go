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

// keysLine names a script's keys, in its header.
var keysLine = regexp.MustCompile(`(?m)^-- KEYS  (.*)$`)

// script is one that producers send.
type script struct {
	name string
	keys []string // their kinds: due, task, ...
	args []string // their names, those of the first task included
	text string
}

// argNames are what the scripts' headers say of ARGV.
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

// published are the scripts in docs/protocol, by the SHA-1 that Redis knows them by.
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
	sum := sha1.Sum([]byte(text)) // it is how Redis names scripts
	return hex.EncodeToString(sum[:])
}

// sent is one script that the program sent, as it reached the proxy.
type sent struct {
	script
	keys  []string
	args  []string
	shard int   // -1: none
	at    int64 // Redis's ms when it arrived

	answer string        // what it was answered, once answered is closed
	done   chan struct{} // closed then
}

// arg is the value of an argument by its name, "" if there is none.
func (s *sent) arg(name string) string {
	if n := slices.Index(s.script.args, name); n >= 0 && n < len(s.args) {
		return s.args[n]
	}
	return ""
}

// notAfter is the Redis ms after which the script does nothing; 0 if it has none.
func (s *sent) notAfter() int64 {
	ms, _ := strconv.ParseInt(s.arg("not_after"), 10, 64) // what is none was answered with an error
	return ms
}

// asks says that it is a note that changes nothing: it only asks for a past.
func (s *sent) asks() bool { return s.name == "note" && s.arg("at") == "" }

// reply notes what the script was answered, once.
func (s *sent) reply(answer string) {
	s.answer = answer
	close(s.done)
}

// keysOf are the keys that a script takes for a shard, or for an ID.
func keysOf(s script, prefix, place string) []string {
	keys := make([]string, len(s.keys))
	for i, kind := range s.keys {
		keys[i] = prefix + ":" + kind + ":{" + place + "}"
	}
	return keys
}

// place is what stands between the braces of a key.
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
