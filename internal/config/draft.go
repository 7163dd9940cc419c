package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Draft is a topic's document that is being edited: what it sets, and its mistakes.
type Draft struct {
	name     string
	out      settings
	mistakes errorList
	assigned []string // keys, in the order they were assigned
}

// ReadDraft reads a topic's document. One with mistakes is a draft, too: an edit may fix them.
func ReadDraft(name string, doc []byte) *Draft {
	d := &Draft{name: name, mistakes: errorList{file: name}}
	d.out = readTopic(name, doc, &d.mistakes)
	return d
}

// Topic returns the settings, defaults included. The error is Errors, with the mistakes of the
// document that no assignment fixed, and of the assignments. The settings go without them.
func (d *Draft) Topic() (Topic, error) {
	errs := d.mistakes
	errs.list = slices.Clone(errs.list)
	t := buildTopic(d.name, d.out, &errs)
	return t, errs.err()
}

// Setting is a key that a document sets. Text is its value as Assign takes it, and YAML as a
// document has it.
type Setting struct{ Key, Text, YAML string }

// Settings returns what the draft sets, in the order of the example file.
func (d *Draft) Settings() (all []Setting) {
	for _, f := range topicFields() {
		if g, ok := d.out.values[f.key]; ok {
			all = append(all, Setting{f.key, show(g.value), scalar(g.value)})
		}
	}
	return all
}

// Empty reports whether the draft has neither a key nor a section, and no mistake.
func (d *Draft) Empty() bool { return len(d.out.values)+len(d.out.sections)+len(d.mistakes.list) == 0 }

// Has reports whether a section is there, with keys or without.
func (d *Draft) Has(section string) bool { return d.out.holds(section) }

// Equal reports whether other sets the same, and neither has a mistake.
func (d *Draft) Equal(other *Draft) bool {
	return len(d.mistakes.list)+len(other.mistakes.list) == 0 && reflect.DeepEqual(d.out.plain(), other.out.plain())
}

// Render writes the draft as YAML, in the order of the example file.
func (d *Draft) Render() []byte { return render(d.out) }

// Assign sets a key, as in shards=8 or declare.queue=q. An empty value removes a key or a whole
// section, so that the default applies. Topic returns its mistakes.
func (d *Draft) Assign(assignment string) {
	key, text, ok := strings.Cut(assignment, "=")
	switch {
	case !ok || key == "":
		d.mistakes.add("", 0, "must be key=value; got %s", clip(assignment))
	case slices.Contains(d.assigned, key):
		d.mistakes.add(key, 0, "assigned twice")
	case text == "":
		d.remove(key)
	default:
		d.set(key, text)
	}
	d.assigned = append(d.assigned, key)
}

// remove removes a key or a section. It accepts an unknown key if the document has it.
func (d *Draft) remove(key string) {
	hadErrors := d.dropErrors(key)
	if _, known := topicFields().find(key); !known && !topicFields().isSection(key) && !hadErrors {
		d.unknown(key)
		return
	}
	maps.DeleteFunc(d.out.values, func(k string, _ given) bool { return k == key || strings.HasPrefix(k, key+".") })
	if section, _, _ := strings.Cut(key, "."); !d.out.under(section) {
		delete(d.out.sections, section)
	}
}

func (d *Draft) set(key, text string) {
	f, known := topicFields().find(key)
	if !known {
		d.unknown(key)
		return
	}
	value, problem := f.fromText(text)
	if problem != "" {
		d.mistakes.add(key, 0, "%s", problem)
		d.out.refused[key] = 0
		return
	}
	d.dropErrors(key)
	d.out.values[key] = given{value: value}
}

func (d *Draft) unknown(key string) {
	if topicFields().isSection(key) {
		d.mistakes.add(key, 0, "is a section; set one of its keys: %s", strings.Join(topicFields().children(key), ", "))
		return
	}
	section, name, prefix := "", key, ""
	if i := strings.LastIndexByte(key, '.'); i >= 0 && topicFields().isSection(key[:i]) {
		section, name, prefix = key[:i], key[i+1:], key[:i+1]
	}
	d.mistakes.add(key, 0, unknownKey+"%s", didYouMean(name, topicFields().children(section), prefix))
}

// dropErrors drops the document's errors about a key that an edit replaces or removes. It
// reports whether there were any.
func (d *Draft) dropErrors(key string) bool {
	before := len(d.mistakes.list)
	d.mistakes.list = slices.DeleteFunc(d.mistakes.list, func(m FieldError) bool {
		return m.Key == key || strings.HasPrefix(m.Key, key+".")
	})
	delete(d.out.refused, key)
	return len(d.mistakes.list) < before
}
