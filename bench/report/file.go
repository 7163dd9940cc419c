package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// JSON writes the report with the values of every run.
func (r Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// Read reads a report from a JSON file. A missing file gives an empty report.
func Read(path string) (Report, error) {
	var r Report
	b, err := os.ReadFile(path) //nolint:gosec // the file that -update writes
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

// Merge adds sheets, and removes older ones of the same measures. It sorts all sheets by
// order, which holds the measures' names, and drops sheets that order doesn't name.
func (r *Report) Merge(sheets []Sheet, order []string) {
	for _, s := range sheets {
		r.Sheets = slices.DeleteFunc(r.Sheets, func(old Sheet) bool { return old.Measure == s.Measure })
	}
	r.Sheets = append(r.Sheets, sheets...)
	r.Sheets = slices.DeleteFunc(r.Sheets, func(s Sheet) bool { return !slices.Contains(order, s.Measure) })
	slices.SortFunc(r.Sheets, func(a, b Sheet) int {
		return slices.Index(order, a.Measure) - slices.Index(order,
			b.Measure)
	})
}

// The generated part of a document is between these markers.
const (
	beginMarker = "<!-- make bench: begin -->"
	endMarker   = "<!-- make bench: end -->"
)

// Replace replaces the text between the markers of a document.
func Replace(path, text string) error {
	b, err := os.ReadFile(path) //nolint:gosec // the document that -update writes
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(b), beginMarker)
	_, foot, ended := strings.Cut(rest, endMarker)
	if !found || !ended {
		return fmt.Errorf("update %s: it holds no %q and %q", path, beginMarker, endMarker)
	}
	document := head + beginMarker + "\n\n" + strings.TrimSpace(text) + "\n\n" + endMarker + foot
	return os.WriteFile(path, []byte(document), 0o644) //nolint:gosec // a document for everybody
}

// WriteJSON writes the report to a JSON file.
func (r Report) WriteJSON(path string) (err error) {
	f, err := os.Create(path) //nolint:gosec // the file that -update writes
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.JSON(f)
}
