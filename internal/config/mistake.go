package config

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Mistake is one thing that is wrong with the settings. It never holds a
// secret's value.
type Mistake struct {
	// File is the file's path, the topic's name for a document of its own, or
	// "environment".
	File string
	// Key is the dotted path of the setting, or the variable's name. Empty for
	// a document that can't be read at all.
	Key string
	// Line counts from 1; 0 is unknown.
	Line int
	// Problem is the rule that was broken, and by what.
	Problem string
}

// String is one line, as in `config.yaml:12: topics.orders.tick: must be ...`.
func (m Mistake) String() string {
	at, key := m.File, m.Key
	if visible(key) != key {
		key = strconv.Quote(key)
	}
	if m.Line > 0 {
		at = fmt.Sprintf("%s:%d", at, m.Line)
	}
	return strings.Join(slices.DeleteFunc([]string{at, key, visible(m.Problem)}, func(s string) bool { return s == "" }), ": ")
}

// visible writes what does not print, such as the tab that the YAML parser
// quotes, as an escape.
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

// Mistakes are all that was found wrong, the file's first and by line.
type Mistakes []Mistake

// Error has a line for each.
func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i := range m {
		lines[i] = m[i].String()
	}
	return strings.Join(lines, "\n")
}

// report collects the mistakes of one document and its environment.
type report struct {
	file   string
	prefix string // begins every key of the document, as in "topics.orders."
	list   Mistakes
}

// within is a report on the part of the document whose keys begin with prefix.
func (r *report) within(prefix string) *report {
	return &report{file: r.file, prefix: prefix}
}

func (r *report) add(key string, line int, format string, args ...any) {
	path := r.prefix + key
	if key == "" {
		path = strings.TrimSuffix(r.prefix, ".")
	}
	r.list = append(r.list, Mistake{File: r.file, Key: path, Line: line, Problem: fmt.Sprintf(format, args...)})
}

// about adds a mistake where key was given, else at the section it belongs to.
func (r *report) about(s settings, key, format string, args ...any) {
	problem := fmt.Sprintf(format, args...)
	if g, ok := s.values[key]; ok && g.file != "" {
		r.list = append(r.list, Mistake{File: g.file, Key: g.name, Problem: problem})
		return
	}
	r.add(key, s.line(key), "%s", problem)
}

// err is nil, or the Mistakes in order.
func (r *report) err() error {
	if len(r.list) == 0 {
		return nil
	}
	slices.SortStableFunc(r.list, func(a, b Mistake) int { return cmp.Compare(r.order(a), r.order(b)) })
	return r.list
}

// order puts the document's own mistakes first, by line.
func (r *report) order(m Mistake) int {
	if m.File != r.file {
		return math.MaxInt
	}
	return m.Line
}

// meant is a question, to be written behind what is unknown, or "" when nothing is
// like it. Prefix begins each candidate's full name.
func meant(word string, candidates []string, prefix string) string {
	like := nearest(word, candidates)
	if like == "" {
		return ""
	}
	return "; did you mean " + prefix + like + "?"
}

// nearest is the candidate most like word, or "" when none is like it.
func nearest(word string, candidates []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(word, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance counts the letters to insert, delete or replace to make b of a
// (Levenshtein), one row of the matrix at a time.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
