package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// rewrite returns the document with each of the keys set to its value in s, or removed if
// s has none. It changes only the keys' lines, so comments and order stay. It can't do
// that in a JSON document, for example. So it reads the result, and if that differs from
// s, it renders s instead.
func rewrite(name string, doc []byte, s settings, keys []string) []byte {
	if len(s.values)+len(s.sections) == 0 {
		return render(s)
	}
	t := text{strings.Split(strings.TrimSuffix(string(doc), "\n"), "\n"), regexp.MustCompile(keyLine)}
	for _, key := range keys {
		section, leaf, nested := strings.Cut(key, ".")
		switch g, there := s.values[key]; {
		case !nested && there:
			t.set(0, len(t.lines), "", key, scalar(g.value))
		case !nested || !s.holds(section):
			t.remove(0, len(t.lines), "", section)
		case there:
			t.nested(section, leaf, scalar(g.value), s)
		default:
			t.nested(section, leaf, "", s)
		}
	}
	written := []byte(strings.Join(t.lines, "\n") + "\n")
	again := &errorList{}
	got := readTopic(name, written, again)
	if len(again.list) > 0 || !reflect.DeepEqual(got.plain(), s.plain()) {
		return render(s)
	}
	return written
}

// plain returns the values by key.
func (s settings) plain() map[string]any {
	all := map[string]any{}
	for key, g := range s.values {
		all[key] = g.value
	}
	return all
}

// text is a topic's document.
type text struct {
	lines   []string // without their ends
	keyLine *regexp.Regexp
}

// keyLine matches the line of a key: indentation, key, a value if there is one, and a
// comment.
const keyLine = `^( *)(\w+):(?:[ \t]+("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^#\s].*?))?((?:[ \t]+#.*)?[ \t]*\r?)$`

// find returns the number of a key's line among the lines from to to-1, or -1. The line
// must have that indentation.
func (t *text) find(from, to int, indent, key string) int {
	for i := from; i < to; i++ {
		if p := t.keyLine.FindStringSubmatch(t.lines[i]); p != nil && p[1] == indent && p[2] == key {
			return i
		}
	}
	return -1
}

// end returns the number of the line after a key's value. A comment that is not indented
// deeper than the key belongs to the next key.
func (t *text) end(at int) int {
	depth, end := indentOf(t.lines[at]), at+1
	for i := at + 1; i < len(t.lines); i++ {
		line := strings.TrimSpace(t.lines[i])
		if line != "" && len(indentOf(t.lines[i])) <= len(depth) && line[0] != '#' {
			break
		}
		if line != "" && len(indentOf(t.lines[i])) > len(depth) {
			end = i + 1
		}
	}
	return end
}

func indentOf(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " "))] }

// set replaces a key's value. It removes the old value's other lines and keeps its
// comments. If the key is missing, it adds a line at the end.
func (t *text) set(from, to int, indent, key, value string) {
	at := t.find(from, to, indent, key)
	if at < 0 {
		t.lines = slices.Insert(t.lines, to, indent+key+": "+value)
		return
	}
	p, end := t.keyLine.FindStringSubmatch(t.lines[at]), t.end(at)
	if old := p[3] + " "; old[0] != '|' && old[0] != '>' { // in a block text, a line with # is a part of the value
		for end > at+1 && strings.HasPrefix(strings.TrimSpace(t.lines[end-1]), "#") {
			end--
		}
	}
	t.lines = slices.Delete(t.lines, at+1, end)
	t.lines[at] = indent + key + ": " + value + p[4]
}

func (t *text) remove(from, to int, indent, key string) {
	if at := t.find(from, to, indent, key); at >= 0 {
		t.lines = slices.Delete(t.lines, at, t.end(at))
	}
}

// nested sets a key of a section, or removes it if value is "".
func (t *text) nested(section, key, value string, s settings) {
	at := t.find(0, len(t.lines), "", section)
	if at < 0 {
		t.lines = append(t.lines, section+":", "  "+key+": "+value)
		return
	}
	if p := t.keyLine.FindStringSubmatch(t.lines[at]); p[3] != "" { // {a: b}
		t.set(at, at+1, "", section, flow(section, s))
		return
	}
	indent, end := "  ", t.end(at)
	for _, line := range t.lines[at+1 : end] {
		if t.keyLine.MatchString(line) {
			indent = indentOf(line)
			break
		}
	}
	if value == "" {
		t.remove(at+1, end, indent, key)
		return
	}
	t.set(at+1, end, indent, key, value)
}

// flow writes a section on one line.
func flow(section string, s settings) string {
	var parts []string
	for _, f := range topicFields() {
		leaf, under := strings.CutPrefix(f.key, section+".")
		if g, there := s.values[f.key]; there && under {
			parts = append(parts, leaf+": "+scalar(g.value))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
