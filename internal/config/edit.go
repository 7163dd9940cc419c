package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Change is one setting that differs. Old is empty if it was not set before, New if it is
// not set any more.
type Change struct{ Key, Old, New string }

// Diff returns the differences between two topics' settings, defaults included.
func Diff(before, after Topic) []Change {
	was, is := Effective(before), Effective(after)
	var changes []Change
	for _, f := range topicFields() {
		if was[f.key] != is[f.key] {
			changes = append(changes, Change{f.key, was[f.key], is[f.key]})
		}
	}
	return changes
}

// Effective returns every setting of a topic by its key, as Edit takes them, defaults
// included. It leaves out the sections that the topic lacks.
func Effective(t Topic) map[string]string {
	all := map[string]string{}
	for _, f := range topicFields() {
		if value, there := f.of(t); there {
			all[f.key] = show(value)
		}
	}
	return all
}

// Given returns what a topic's document sets, by key, without defaults. Durations are texts.
// It omits the unreadable parts of a broken document.
func Given(name string, doc []byte) map[string]any {
	all := readTopic(name, doc, &errorList{}).plain()
	for key, value := range all {
		if d, ok := value.(time.Duration); ok {
			all[key] = showDuration(d)
		}
	}
	return all
}

// Key is the key of a topic's setting, such as declare.queue. Words are the values that it
// accepts; nil if they can't be listed.
type Key struct {
	Name  string
	Words []string
}

// TopicKeys returns the keys of all settings of topics, in the order of a document.
func TopicKeys() (all []Key) {
	for _, f := range topicFields() {
		all = append(all, Key{f.key, f.words})
	}
	return all
}

// Complete returns a topic as a document with all keys, even those with default values.
// There are two exceptions. It omits the keys of a section that the topic lacks. It also
// omits a text that is empty like its default, because scanners of an older version may
// not know its key.
func Complete(t Topic) []byte {
	s := newSettings()
	defaults := DefaultTopic("orders")
	defaults.Declare, defaults.Intake = &Declare{}, newIntake("orders")
	setDefaults(defaults.Declare)
	for _, f := range topicFields() {
		byDefault, _ := f.of(defaults)
		if value, there := f.of(t); there && (value != "" || byDefault != "") {
			s.values[f.key] = given{value: value}
		}
	}
	return render(s)
}

// Edit applies assignments such as shards=8 and declare.queue=q to a topic's document. An
// empty value removes a key or a whole section, so that the default applies. With an
// empty doc, Edit makes a new document, and diff lists all its settings. Edit checks only
// the result, so an edit can also fix a broken document. The error is Errors.
//
// If doc is YAML with one key a line, newDoc keeps its comments, its order and everything
// that isn't edited. Otherwise newDoc is rendered from the settings.
func Edit(name string, doc []byte, assignments []string) (newDoc []byte, diff []Change, err error) {
	errs := &errorList{file: name}
	s := readTopic(name, doc, errs)
	isNew := len(s.values) == 0 && len(errs.list) == 0
	old := buildTopic(name, s, &errorList{})
	s = s.cloned()
	e := editor{table: topicFields(), out: s, errs: errs}
	for _, a := range assignments {
		e.assign(a)
	}
	edited := buildTopic(name, s, errs)
	if err := errs.err(); err != nil {
		return nil, nil, err
	}
	if isNew {
		return render(s), e.set(), nil
	}
	return rewrite(name, doc, s, e.done), Diff(old, edited), nil
}

func (s settings) cloned() settings {
	return settings{values: maps.Clone(s.values), sections: maps.Clone(s.sections), refused: maps.Clone(s.refused)}
}

// editor changes the settings of a topic's document.
type editor struct {
	table table
	out   settings
	errs  *errorList
	done  []string // keys, in the order they were assigned
}

func (e *editor) assign(assignment string) {
	key, text, ok := strings.Cut(assignment, "=")
	switch {
	case !ok || key == "":
		e.errs.add("", 0, "must be key=value; got %s", clip(assignment))
	case slices.Contains(e.done, key):
		e.errs.add(key, 0, "assigned twice")
	case text == "":
		e.remove(key)
	default:
		e.setValue(key, text)
	}
	e.done = append(e.done, key)
}

// remove removes a key or a section. It accepts an unknown key if the document has it.
func (e *editor) remove(key string) {
	hadErrors := e.dropErrors(key)
	if _, known := e.table.find(key); !known && !e.table.isSection(key) && !hadErrors {
		e.unknown(key)
		return
	}
	maps.DeleteFunc(e.out.values, func(k string, _ given) bool { return k == key || strings.HasPrefix(k, key+".") })
	if section, _, _ := strings.Cut(key, "."); !e.out.under(section) {
		delete(e.out.sections, section)
	}
}

func (e *editor) setValue(key, text string) {
	f, known := e.table.find(key)
	if !known {
		e.unknown(key)
		return
	}
	value, problem := f.fromText(text)
	if problem != "" {
		e.errs.add(key, 0, "%s", problem)
		e.out.refused[key] = 0
		return
	}
	e.dropErrors(key)
	e.out.values[key] = given{value: value}
}

func (e *editor) unknown(key string) {
	if e.table.isSection(key) {
		e.errs.add(key, 0, "is a section; set one of its keys: %s", strings.Join(e.table.children(key), ", "))
		return
	}
	section, name, prefix := "", key, ""
	if i := strings.LastIndexByte(key, '.'); i >= 0 && e.table.isSection(key[:i]) {
		section, name, prefix = key[:i], key[i+1:], key[:i+1]
	}
	e.errs.add(key, 0, unknownKey+"%s", didYouMean(name, e.table.children(section), prefix))
}

// dropErrors drops the document's errors about a key that an edit replaces or removes. It
// reports whether there were any.
func (e *editor) dropErrors(key string) bool {
	before := len(e.errs.list)
	e.errs.list = slices.DeleteFunc(e.errs.list, func(m FieldError) bool {
		return m.Key == key || strings.HasPrefix(m.Key, key+".")
	})
	delete(e.out.refused, key)
	return len(e.errs.list) < before
}

// set lists the settings of a new document.
func (e *editor) set() []Change {
	var changes []Change
	for _, f := range e.table {
		if g, ok := e.out.values[f.key]; ok {
			changes = append(changes, Change{Key: f.key, New: show(g.value)})
		}
	}
	return changes
}

// render writes a topic's settings as YAML, in the table's order.
func render(s settings) []byte {
	var out bytes.Buffer
	open := ""
	for _, f := range topicFields() {
		g, ok := s.values[f.key]
		if !ok {
			continue
		}
		section, leaf, nested := strings.Cut(f.key, ".")
		if !nested {
			fmt.Fprintf(&out, "%s: %s\n", f.key, scalar(g.value))
			continue
		}
		if section != open {
			fmt.Fprintf(&out, "%s:\n", section)
			open = section
		}
		fmt.Fprintf(&out, "  %s: %s\n", leaf, scalar(g.value))
	}
	if out.Len() == 0 {
		return []byte("{}\n")
	}
	return out.Bytes()
}

// scalar writes a value so that YAML reads it as the same type. A text that YAML could
// read as another type becomes a JSON string, which is valid YAML.
func scalar(value any) string {
	text, ok := value.(string)
	if !ok || isPlain(text) {
		return show(value)
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(fmt.Sprintf("marshal a string: %v", err)) // no string fails
	}
	return string(quoted)
}

// isPlain reports whether a text needs no quotes in any version of YAML.
func isPlain(text string) bool {
	words := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"}
	if text == "" || slices.Contains(words, strings.ToLower(text)) || letters("._-", 255)(text) != "" {
		return false
	}
	return strings.Trim(text[:1], "0123456789._-") != ""
}
