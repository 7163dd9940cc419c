package docs_test

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// page is a Markdown file.
type page struct {
	path string // from the repository's root, with slashes
	text string
	// prose is text with blanks in place of blocks of code and spans of code. Its bytes
	// are at the same offsets.
	prose string
	spans []excerpt // of code, without the backquotes
	lines []excerpt // in blocks of code other than Go and JSON; a line that goes on is one
}

// excerpt is a part of a page and the number of its line.
type excerpt struct {
	line int
	text string
}

func readPage(path, text string) page {
	p := page{path: path, text: text}
	prose := []byte(text)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			if prose[i] != '\n' {
				prose[i] = ' '
			}
		}
	}
	offset, fence := 0, ""
	for number, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		opens := strings.HasPrefix(trimmed, "```")
		if opens || fence != "" {
			blank(offset, offset+len(line))
		}
		switch {
		case opens && fence == "":
			fence = trimmed
		case opens:
			fence = ""
		case fence != "" && fence != "```go" && fence != "```json":
			if last := len(p.lines) - 1; last >= 0 && strings.HasSuffix(p.lines[last].text, "\\") {
				p.lines[last].text = strings.TrimSuffix(p.lines[last].text, "\\") + line
			} else {
				p.lines = append(p.lines, excerpt{number + 1, line})
			}
		}
		offset += len(line) + 1
	}
	for _, at := range regexp.MustCompile("`[^`]+`").FindAllIndex(prose, -1) {
		code := strings.Join(strings.Fields(text[at[0]+1:at[1]-1]), " ")
		p.spans = append(p.spans, excerpt{p.line(at[0]), code})
		blank(at[0], at[1])
	}
	p.prose = string(prose)
	return p
}

// line is the number of the line at an offset.
func (p page) line(offset int) int { return 1 + strings.Count(p.text[:offset], "\n") }

// mistake returns the text of a mistake, with the page and the line in front.
func (p page) mistake(line int, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", p.path, line, fmt.Sprintf(format, args...))
}

// anchors returns the anchors that GitHub makes from the page's headings.
func (p page) anchors() map[string]bool {
	all, seen := map[string]bool{}, map[string]int{}
	prose := strings.Split(p.prose, "\n")
	for i, line := range strings.Split(p.text, "\n") {
		heading := strings.TrimLeft(line, "#")
		if !strings.HasPrefix(prose[i], "#") || !strings.HasPrefix(heading, " ") {
			continue
		}
		name := anchor(strings.TrimSpace(heading))
		if n := seen[name]; n > 0 {
			all[fmt.Sprintf("%s-%d", name, n)] = true
		}
		seen[name]++
		all[name] = true
	}
	return all
}

// anchor returns the anchor of a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
