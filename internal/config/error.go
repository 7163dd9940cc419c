package config

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/duefleet/duefleet/internal/didyoumean"
)

// FieldError is one mistake in the settings. It never contains a secret's value.
type FieldError struct {
	// File is the file's path, the topic's name if the topic has its own document, or
	// "environment".
	File string
	// Key is the dotted path of the setting, or the variable's name. Empty if the whole
	// document can't be read.
	Key string
	// Line counts from 1; 0 is unknown.
	Line int
	// Problem says what is required and what was given instead.
	Problem string
}

// Error returns one line, as in `config.yaml:12: topics.orders.tick: must be ...`.
func (e FieldError) Error() string {
	at, key := e.File, e.Key
	if visible(key) != key {
		key = strconv.Quote(key)
	}
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", at, e.Line)
	}
	return strings.Join(slices.DeleteFunc([]string{at, key, visible(e.Problem)}, func(s string) bool { return s == "" }),
		": ")
}

// unknownKey begins the problem of an unknown key.
const unknownKey = "unknown key"

// Unknown reports whether the key is unknown.
func (e FieldError) Unknown() bool { return strings.HasPrefix(e.Problem, unknownKey) }

// visible escapes unprintable characters, such as the tab that the YAML parser quotes.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// Errors are all mistakes in the settings: first those in the file, by line, then those
// in the environment.
type Errors []FieldError

// Error returns a line for each mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// errorList collects the errors of one document and its environment.
type errorList struct {
	file   string
	prefix string // begins every key of the document, as in "topics.orders."
	list   Errors
}

// within returns a list for the part of the document whose keys begin with prefix.
func (l *errorList) within(prefix string) *errorList {
	return &errorList{file: l.file, prefix: prefix}
}

func (l *errorList) add(key string, line int, format string, args ...any) {
	path := l.prefix + key
	if key == "" {
		path = strings.TrimSuffix(l.prefix, ".")
	}
	l.list = append(l.list, FieldError{File: l.file, Key: path, Line: line, Problem: fmt.Sprintf(format, args...)})
}

// about adds an error at the place where key was given: a line, a variable, or else its
// section.
func (l *errorList) about(s settings, key, format string, args ...any) {
	problem := fmt.Sprintf(format, args...)
	if g, ok := s.values[key]; ok && g.file != "" {
		l.list = append(l.list, FieldError{File: g.file, Key: g.name, Problem: problem})
		return
	}
	l.add(key, s.line(key), "%s", problem)
}

// err returns the Errors in order, or nil.
func (l *errorList) err() error {
	if len(l.list) == 0 {
		return nil
	}
	slices.SortStableFunc(l.list, func(a, b FieldError) int { return cmp.Compare(l.order(a), l.order(b)) })
	return l.list
}

// order puts the document's own errors first, by line.
func (l *errorList) order(e FieldError) int {
	if e.File != l.file {
		return math.MaxInt
	}
	return e.Line
}

// didYouMean returns a question to append after an unknown word, as in "; did you mean
// redis.addrs?". It is "" if no candidate is like the word. prefix begins each
// candidate's full name.
func didYouMean(word string, candidates []string, prefix string) string {
	like := nearest(word, candidates)
	if like == "" {
		return ""
	}
	return "; did you mean " + prefix + like + "?"
}

// nearest returns the candidate most like word, or "" if none is like it.
func nearest(word string, candidates []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if d := didyoumean.Distance(word, c); d < least {
			best, least = c, d
		}
	}
	return best
}
