package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/duefleet/duefleet/internal/duetime"
)

// field is one setting of a Config or a Topic, as its tags describe it:
//
//	yaml     its name within its section
//	default  the default, in the form of an environment variable; without this tag,
//	         the zero value of its type
//	check    the rule for a value, see ruleOf
//	secret   the value is never shown, and may be the content of a file
//	since    the Format of topics' documents that got it, see Newer; with "word=" in front
//	         that is only so for this value
type field struct {
	// key is the dotted path within the document, as in redis.tls.ca_file.
	key string
	// path leads to the field inside the struct, for reflect.Value.FieldByIndex.
	path []int
	// zero is the zero value of its type: string, []string, int, bool or time.Duration.
	zero any
	// byDefault is the default as text.
	byDefault string
	// rule checks a value; nil accepts every value.
	rule rule
	// words are the values that it accepts; nil if they can't be listed.
	words []string
	// since is the Format that got the setting, 0 if scanners of all versions know it. With
	// sinceWord only this value is newer. sinceKey is the newer section that has the field.
	since               int
	sinceWord, sinceKey string
	// fileOf is the key whose value comes from this key's file: redis.password for the
	// key redis.password_file. It is "" for other keys.
	fileOf string
}

// table holds every field of a struct, in its order.
type table []field

func configFields() table { return fieldsOf(reflect.TypeFor[Config]()) }

func topicFields() table { return fieldsOf(reflect.TypeFor[Topic]()) }

// tables has the table of each type that was asked for. Tags never change, and to read them takes
// longer than to read a document.
var tables sync.Map //nolint:gochecknoglobals // a cache, as encoding/json has one of fields

// fieldsOf returns the table of a struct's fields, which nobody may change.
func fieldsOf(t reflect.Type) table {
	known, there := tables.Load(t)
	if !there {
		known, _ = tables.LoadOrStore(t, listFields(t, "", nil))
	}
	all, _ := known.(table)
	return all
}

// listFields lists the fields that have a name, and a <key>_file for each secret.
func listFields(t reflect.Type, section string, path []int) table {
	var all table
	for i := range t.NumField() {
		part := t.Field(i)
		name, named := part.Tag.Lookup("yaml")
		if !named {
			continue
		}
		key, at, kind := section+name, append(slices.Clone(path), i), part.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if kind.Kind() == reflect.Struct {
			fields := listFields(kind, key+".", at)
			if since, _ := strconv.Atoi(part.Tag.Get("since")); since > 0 {
				for i := range fields {
					fields[i].since, fields[i].sinceKey = since, key
				}
			}
			all = append(all, fields...)
			continue
		}
		f := field{key: key, path: at, zero: reflect.Zero(kind).Interface(), byDefault: part.Tag.Get("default")}
		f.rule = ruleOf(part.Tag.Get("check"), f.zero)
		word, since, _ := strings.Cut(part.Tag.Get("since"), "=")
		if since == "" {
			word, since = "", word
		}
		f.sinceWord = word
		f.since, _ = strconv.Atoi(since)
		if words := strings.Split(part.Tag.Get("check"), "|"); len(words) > 1 {
			f.words = words
		} else if f.zero == any(false) {
			f.words = []string{"true", "false"}
		}
		all = append(all, f)
		if part.Tag.Get("secret") != "" {
			all = append(all, field{key: key + "_file", fileOf: key, zero: "", rule: within("", "1", "4096")})
		}
	}
	return all
}

// setDefaults sets the defaults of a struct's fields. A missing section stays missing.
func setDefaults(target any) {
	root := reflect.ValueOf(target).Elem()
	for _, f := range fieldsOf(root.Type()) {
		at, err := root.FieldByIndexErr(f.path)
		if err != nil || f.byDefault == "" {
			continue
		}
		value, problem := parseText(f.zero, f.byDefault)
		if problem != "" {
			panic(f.key + ": its default " + problem)
		}
		at.Set(reflect.ValueOf(value))
	}
}

// of returns the field's value in a struct; false if its section is missing.
func (f field) of(target any) (any, bool) {
	at, err := reflect.Indirect(reflect.ValueOf(target)).FieldByIndexErr(f.path)
	if err != nil {
		return nil, false
	}
	return at.Interface(), true
}

func (f field) check(value any) string {
	if f.rule == nil {
		return ""
	}
	return f.rule(value)
}

// fromText parses a value from the environment or an operator's edit. It returns what is
// wrong with it, or "".
func (f field) fromText(text string) (any, string) {
	if !utf8.ValidString(text) {
		return nil, "must be UTF-8"
	}
	value, problem := parseText(f.zero, text)
	if problem == "" {
		problem = f.check(value)
	}
	return value, problem
}

func (t table) find(key string) (field, bool) {
	i := slices.IndexFunc(t, func(f field) bool { return f.key == key })
	if i < 0 {
		return field{}, false
	}
	return t[i], true
}

// isSection reports whether other keys belong to this one.
func (t table) isSection(key string) bool {
	return slices.ContainsFunc(t, func(f field) bool { return strings.HasPrefix(f.key, key+".") })
}

// children lists the names directly under a section; "" is the top.
func (t table) children(section string) []string {
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

// given is a value and the place where it was given.
type given struct {
	value any
	line  int
	// file and name are set for a value from a variable: environmentFile and the
	// variable's name.
	file, name string
}

// settings are the settings in one document.
type settings struct {
	values   map[string]given
	sections map[string]int // lines of the sections in the document
	refused  map[string]int // lines of the keys whose value can't be used
}

func newSettings() settings {
	return settings{values: map[string]given{}, sections: map[string]int{}, refused: map[string]int{}}
}

// apply stores the settings in a struct. The struct must have their sections.
func (s settings) apply(target any) {
	root := reflect.ValueOf(target).Elem()
	for _, f := range fieldsOf(root.Type()) {
		if g, ok := s.values[f.key]; ok && f.fileOf == "" {
			root.FieldByIndex(f.path).Set(reflect.ValueOf(g.value))
		}
	}
}

// holds reports whether a section was given, with keys or without.
func (s settings) holds(section string) bool {
	_, there := s.sections[section]
	return there || s.under(section)
}

// under reports whether a key of the section was given.
func (s settings) under(section string) bool {
	for key := range s.values {
		if strings.HasPrefix(key, section+".") {
			return true
		}
	}
	return false
}

// line returns the line of key, else of its nearest section, else 0.
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

// parseText parses text as zero's type. The problem quotes only numbers, booleans and
// durations, because those are never secrets.
func parseText(zero any, text string) (value any, problem string) {
	switch zero.(type) {
	case []string:
		return splitList(text), ""
	case int:
		return parseInt(text)
	case bool:
		if text != "true" && text != "false" {
			return nil, "must be true or false; got " + clip(text)
		}
		return text == "true", ""
	case time.Duration:
		return parseDuration(text)
	default:
		return text, ""
	}
}

// parseInt refuses numbers that versions of YAML read differently, such as 010: 8 or 10.
func parseInt(text string) (any, string) {
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text {
		return nil, "must be a whole number; got " + clip(text)
	}
	return n, ""
}

func parseDuration(text string) (any, string) {
	d, err := duetime.Span(text)
	if err != nil {
		return nil, err.Error() + "; got " + clip(text)
	}
	return d, ""
}

// splitList splits at commas and line ends.
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

// show returns a value as a text that parseText reads.
func show(value any) string {
	switch v := value.(type) {
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		return showDuration(v)
	default:
		return fmt.Sprint(v)
	}
}

// showDuration omits zero parts: 5m, not 5m0s.
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

// clip quotes the beginning of text for an error.
func clip(text string) string {
	const most = 40
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strconv.Quote(text)
}
