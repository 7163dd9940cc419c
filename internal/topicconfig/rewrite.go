package topicconfig

import (
	"regexp"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/config"
)

// edit applies assignments, as config.Draft takes them, to a topic's document. With an empty
// doc it makes a new document, and changes lists all its settings. It checks only the result, so
// an edit can also fix a broken document. The error is config.Errors.
//
// If doc is YAML with one key a line, after keeps its comments, its order and everything
// that isn't edited. Otherwise after is rendered from the settings.
func edit(topic string, doc []byte, assignments []string) (after []byte, changes []config.Change, err error) {
	d := config.ReadDraft(topic, doc)
	isNew := d.Empty()
	was, _ := d.Topic() // with mistakes, without what they are in
	keys := make([]string, 0, len(assignments))
	for _, a := range assignments {
		d.Assign(a)
		key, _, _ := strings.Cut(a, "=")
		keys = append(keys, key)
	}
	is, err := d.Topic()
	if err != nil {
		return nil, nil, err
	}
	if !isNew {
		return rewrite(topic, doc, d, keys), config.Diff(was, is), nil
	}
	for _, s := range d.Settings() {
		changes = append(changes, config.Change{Key: s.Key, New: s.Text})
	}
	return d.Render(), changes, nil
}

// rewrite returns the document with each of the keys set to its value in d, or removed if
// d has none. It changes only the keys' lines, so comments and order stay. It can't do
// that in a JSON document, for example. So it reads the result, and if that differs from
// d, it renders d instead.
func rewrite(topic string, doc []byte, d *config.Draft, keys []string) []byte {
	if d.Empty() {
		return d.Render()
	}
	settings := d.Settings()
	t := text{strings.Split(strings.TrimSuffix(string(doc), "\n"), "\n"), regexp.MustCompile(keyLine)}
	for _, key := range keys {
		section, leaf, nested := strings.Cut(key, ".")
		at := slices.IndexFunc(settings, func(s config.Setting) bool { return s.Key == key })
		switch {
		case !nested && at >= 0:
			t.set(0, len(t.lines), "", key, settings[at].YAML)
		case !nested || !d.Has(section):
			t.remove(0, len(t.lines), "", section)
		case at >= 0:
			t.nested(section, leaf, settings[at].YAML, settings)
		default:
			t.nested(section, leaf, "", settings)
		}
	}
	written := []byte(strings.Join(t.lines, "\n") + "\n")
	if !d.Equal(config.ReadDraft(topic, written)) {
		return d.Render()
	}
	return written
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
func (t *text) nested(section, key, value string, settings []config.Setting) {
	at := t.find(0, len(t.lines), "", section)
	if at < 0 {
		t.lines = append(t.lines, section+":", "  "+key+": "+value)
		return
	}
	if p := t.keyLine.FindStringSubmatch(t.lines[at]); p[3] != "" { // {a: b}
		t.set(at, at+1, "", section, flow(section, settings))
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
func flow(section string, settings []config.Setting) string {
	var parts []string
	for _, s := range settings {
		if leaf, under := strings.CutPrefix(s.Key, section+"."); under {
			parts = append(parts, leaf+": "+s.YAML)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
