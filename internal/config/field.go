package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// field is one setting of a T: a Config or a Topic.
type field[T any] struct {
	// key is the dotted path within the document.
	key string
	// at points to the setting inside a T: a *string, *[]string, *int, *bool
	// or *time.Duration, which is its kind.
	at func(*T) any
	// rule is what a value of that kind must keep; nil is no rule.
	rule rule
	// secret values are never shown, and may come as a file's content.
	secret bool
	// fileOf is the key whose value is the content of the file named here.
	fileOf string
	// doc says what it is, in a line.
	doc string
}

// rule returns what is wrong with a value, or "".
type rule func(value any) string

// kind is a pointer of the field's type.
func (f field[T]) kind() any {
	if f.fileOf != "" {
		return new(string)
	}
	var t T
	return f.at(&t)
}

func (f field[T]) check(value any) string {
	if f.rule == nil {
		return ""
	}
	return f.rule(value)
}

// fromText reads a value as the environment and the operator's edits write
// it, and returns what is wrong with it, or "".
func (f field[T]) fromText(text string) (any, string) {
	if !utf8.ValidString(text) {
		return nil, "must be UTF-8"
	}
	value, problem := parseText(f.kind(), text)
	if problem == "" {
		problem = f.check(value)
	}
	return value, problem
}

// table is every field of a T, in the order they are written down.
type table[T any] []field[T]

// withFiles adds the <key>_file of each secret.
func (t table[T]) withFiles() table[T] {
	var all table[T]
	for _, f := range t {
		all = append(all, f)
		if f.secret {
			twin := field[T]{key: f.key + "_file", fileOf: f.key, rule: length(1, 4096)}
			twin.doc = "a file that holds it instead"
			all = append(all, twin)
		}
	}
	return all
}

func (t table[T]) find(key string) (field[T], bool) {
	i := slices.IndexFunc(t, func(f field[T]) bool { return f.key == key })
	if i < 0 {
		return field[T]{}, false
	}
	return t[i], true
}

// isSection reports whether keys lie under this one.
func (t table[T]) isSection(key string) bool {
	return slices.ContainsFunc(t, func(f field[T]) bool { return strings.HasPrefix(f.key, key+".") })
}

// children lists the names directly under a section; "" is the top.
func (t table[T]) children(section string) []string {
	var names []string
	for _, f := range t {
		rest, under := strings.CutPrefix(f.key, section)
		if section == "" || under && rest[0] == '.' {
			name, _, _ := strings.Cut(strings.TrimPrefix(rest, "."), ".")
			names = append(names, name)
		}
	}
	return slices.Compact(names)
}

// apply stores the settings in target.
func (t table[T]) apply(target *T, s settings) {
	for _, f := range t {
		if g, ok := s.values[f.key]; ok && f.fileOf == "" {
			store(f.at(target), g.value)
		}
	}
}

// given is a value that was written down somewhere.
type given struct {
	value any
	line  int
	// file and name are set where it isn't the document's own line: the
	// environment and the variable's name.
	file, name string
}

// settings is what one document says.
type settings struct {
	values   map[string]given
	sections map[string]int // lines of the sections that are there
	refused  map[string]int // lines of the keys whose value can't be used
}

func newSettings() settings {
	return settings{values: map[string]given{}, sections: map[string]int{}, refused: map[string]int{}}
}

// line is where key was given, else its nearest section, else 0.
func (s settings) line(key string) int {
	if g, ok := s.values[key]; ok {
		return g.line
	}
	for i := strings.LastIndexByte(key, '.'); i >= 0; i = strings.LastIndexByte(key[:i], '.') {
		if line, ok := s.sections[key[:i]]; ok {
			return line
		}
	}
	return 0
}

func store(target, value any) {
	switch p := target.(type) {
	case *string:
		*p = value.(string)
	case *[]string:
		*p = value.([]string)
	case *int:
		*p = value.(int)
	case *bool:
		*p = value.(bool)
	case *time.Duration:
		*p = value.(time.Duration)
	}
}

// parseText reads text as the kind asks. Only numbers, booleans and durations
// are quoted in the problem: none of them is a secret.
func parseText(kind any, text string) (value any, problem string) {
	switch kind.(type) {
	case *[]string:
		return splitList(text), ""
	case *int:
		return parseInt(text)
	case *bool:
		if text != "true" && text != "false" {
			return nil, "must be true or false; got " + clip(text)
		}
		return text == "true", ""
	case *time.Duration:
		return parseDuration(text)
	default:
		return text, ""
	}
}

// parseInt refuses what YAML's versions disagree about, such as 010.
func parseInt(text string) (any, string) {
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text {
		return nil, "must be a whole number; got " + clip(text)
	}
	return n, ""
}

func parseDuration(text string) (any, string) {
	d, err := time.ParseDuration(text)
	if err == nil && text != "0" {
		return d, ""
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return nil, "needs a unit, as in " + clip(text+"s") + "; got " + clip(text)
	}
	return nil, "must be a duration with the unit ms, s, m or h, as in 30s; got " + clip(text)
}

// splitList separates at commas and ends of lines.
func splitList(text string) []string {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' })
	list := []string{}
	for _, p := range parts {
		if p = strings.TrimSpace(p); p != "" {
			list = append(list, p)
		}
	}
	return list
}

// show writes a value, or what a pointer to it points to, as parseText reads it.
func show(value any) string {
	switch v := value.(type) {
	case *string:
		return *v
	case *[]string:
		return strings.Join(*v, ",")
	case *int:
		return strconv.Itoa(*v)
	case *bool:
		return strconv.FormatBool(*v)
	case *time.Duration:
		return show(*v)
	case time.Duration:
		return showDuration(v)
	default:
		return fmt.Sprint(v)
	}
}

// showDuration leaves out what is zero: 5m, not 5m0s.
func showDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// clip quotes the beginning of text for a mistake.
func clip(text string) string {
	const most = 40
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strconv.Quote(text)
}
