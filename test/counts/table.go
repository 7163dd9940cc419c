package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The marks in a page around the tables.
const (
	beginMark = "<!-- make counts: begin -->\n"
	endMark   = "<!-- make counts: end -->\n"
)

// row is a line of the table: a name, and the value for a version.
type row struct {
	name  string
	value func(c counts) string
}

// tables formats one or two versions as Markdown.
func tables(versions []counts) string {
	var b strings.Builder
	writeTable(&b, "what", "", versions, rows())
	b.WriteString("\n")
	packages := map[string]bool{}
	for _, v := range versions {
		for p := range v.Packages {
			packages[p] = true
		}
	}
	var all []row
	for _, p := range slices.Sorted(maps.Keys(packages)) {
		name := p // as text: the checks of pages look for a path in code
		if versions[len(versions)-1].Packages[p].Files > 0 {
			name = "`" + p + "`"
		}
		all = append(all, row{name, func(c counts) string {
			if c.Packages[p].Files == 0 {
				return "-"
			}
			return fmt.Sprintf("%d; %s", c.Packages[p].Files, thousands(c.Packages[p].Lines))
		}})
	}
	writeTable(&b, "package", "files; lines", versions, all)
	return b.String()
}

func writeTable(b *strings.Builder, title, unit string, versions []counts, all []row) {
	heads := []string{"now"}
	if len(versions) == 2 {
		heads = []string{"before", "now"}
	}
	b.WriteString("| " + title)
	for _, h := range heads {
		b.WriteString(" | " + strings.TrimPrefix(unit+" "+h, " "))
	}
	b.WriteString(" |\n|---" + strings.Repeat("|---", len(versions)) + "|\n")
	for _, r := range all {
		b.WriteString("| " + r.name)
		for _, v := range versions {
			b.WriteString(" | " + r.value(v))
		}
		b.WriteString(" |\n")
	}
}

func rows() []row {
	number := func(name string, n func(c counts) int) row {
		return row{name, func(c counts) string { return thousands(n(c)) }}
	}
	all := []row{
		number("files of the product", func(c counts) int { return c.Files }),
		number("lines of the product", func(c counts) int { return c.Lines }),
		number("median length of a function in lines", func(c counts) int { return c.Median }),
		number("90 % of functions have at most", func(c counts) int { return c.P90 }),
		number(fmt.Sprintf("functions above %d lines", longFunction), func(c counts) int { return c.Long }),
		number("lines of the longest file", func(c counts) int { return c.Longest }),
		{"tests : code", func(c counts) string { return fmt.Sprintf("%.2f", float64(c.Tests)/float64(c.Lines)) }},
		number("lines of test helpers", func(c counts) int { return c.Helpers }),
		number("replies read without their type", func(c counts) int { return c.Untyped }),
		number("exported names of `internal/shard`", func(c counts) int { return c.Exported }),
	}
	for _, name := range []string{"first schedule", "schedule", "due task", "change of M"} {
		all = append(all,
			row{name + ": files", func(c counts) string { return walked(c, name, walkFiles) }},
			row{name + ": functions", func(c counts) string { return walked(c, name, walkFunctions) }},
			row{name + ": depth", func(c counts) string { return walked(c, name, walkDepth) }})
	}
	return all
}

// walked returns a figure of a walk, or a dash for a version without walks.
func walked(c counts, name string, figure func(w walk) string) string {
	w, ok := c.Walks[name]
	if !ok {
		return "-"
	}
	return figure(w)
}

func walkFiles(w walk) string {
	if len(w.Idle) > 0 {
		return fmt.Sprintf("%d, %d of them also idle", len(w.Files), len(w.Idle))
	}
	return fmt.Sprint(len(w.Files))
}

func walkFunctions(w walk) string { return fmt.Sprint(w.Functions) }

func walkDepth(w walk) string { return fmt.Sprint(w.Depth) }

// thousands formats a number with commas.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// replaced returns a page with other tables between its marks.
func replaced(page, table string) (string, error) {
	before, rest, begins := strings.Cut(page, beginMark)
	_, after, ends := strings.Cut(rest, endMark)
	if !begins || !ends {
		return "", errors.New("the page has no marks for the tables")
	}
	return before + beginMark + "\n" + table + "\n" + endMark + after, nil
}
