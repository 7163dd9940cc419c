package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Markdown writes the whole report. charts has the paths of SVG files by measure, and may
// be nil.
func (r Report) Markdown(w io.Writer, charts map[string][]string) error {
	var b strings.Builder
	r.heading(&b)
	r.goals(&b)
	for _, s := range r.Sheets {
		s.markdown(&b, charts[s.Measure])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) heading(b *strings.Builder) {
	fmt.Fprintf(b, "Machine: %s.\n\n- %s\n\n",
		r.Machine, strings.Join(r.Versions, "\n- "))
	if slices.ContainsFunc(r.Sheets, func(s Sheet) bool { return s.Quick }) {
		b.WriteString("**Some of this was measured with `-quick`, with a tenth of the sizes and one run. " +
			"That shows that the measures work. Those figures say nothing about speed. They are marked (quick).**\n\n")
	}
}

// goals writes one row for each goal of all sheets.
func (r Report) goals(b *strings.Builder) {
	b.WriteString("### Goals\n\n| measure | goal | measured | |\n|---|---|---:|---|\n")
	for _, s := range r.Sheets {
		for _, v := range s.Verdicts {
			got, word := "-", "not measured"
			if v.Measured {
				got, word = Number(v.Got), "missed"
				if v.Kept {
					word = "kept"
				}
			}
			fmt.Fprintf(b, "| [%s](#%s)%s | %s | %s | %s |\n", s.Measure, anchor(s.heading()), s.mark(), v.Goal, got, word)
		}
	}
	b.WriteString("\n")
}

func (s Sheet) heading() string { return s.Measure + ": " + s.Title }

// anchor returns GitHub's anchor for a heading.
func anchor(heading string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(heading) {
		switch {
		case c == ' ':
			b.WriteByte('-')
		case c == '-' || c == '_' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		}
	}
	return b.String()
}

func (s Sheet) mark() string {
	if s.Quick {
		return " (quick)"
	}
	return ""
}

// markdown writes one table: a row for each subject, a column for each name.
func (s Sheet) markdown(b *strings.Builder, charts []string) {
	var subjects, names []string
	for _, f := range s.Figures {
		if !slices.Contains(subjects, f.Subject) {
			subjects = append(subjects, f.Subject)
		}
		if !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	fmt.Fprintf(b, "### %s\n\n", s.heading())
	if len(names) > 0 {
		fmt.Fprintf(b, "| | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---:|", len(names)))
	}
	for _, subject := range subjects {
		fmt.Fprintf(b, "| %s |", subject)
		for _, name := range names {
			cell := ""
			if f := s.find(subject, name); f != nil {
				cell = Number(f.Median)
			}
			fmt.Fprintf(b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	for _, chart := range charts {
		fmt.Fprintf(b, "\n![%s](%s)\n", s.Title, chart)
	}
	fmt.Fprintf(b, "\n%s, %s%s%s.", count(s.Runs), s.Measured.UTC().Format("2006-01-02"), s.others(), s.mark())
	if s.Machine != nil {
		fmt.Fprintf(b, " This was another machine: %s.", *s.Machine)
	}
	for _, note := range s.Notes {
		fmt.Fprintf(b, " %s", sentence(note))
	}
	b.WriteString("\n\n")
}

// others returns a text about other load on the machine, or "".
func (s Sheet) others() string {
	if len(s.OtherLoad) == 0 {
		return ""
	}
	return fmt.Sprintf("; other processes took at most %.1f%% of the machine", slices.Max(s.OtherLoad))
}

func count(runs int) string {
	switch runs {
	case 0:
		return "Not measured"
	case 1:
		return "1 run"
	}
	return fmt.Sprintf("Medians of %d runs", runs)
}

func sentence(s string) string {
	s = strings.TrimSuffix(s, ".")
	first, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[size:] + "."
}
