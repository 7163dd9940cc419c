package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/duefleet/duefleet/internal/cli"
)

// badLinesShown is how many bad lines are shown one by one: a stream of the wrong
// kind has nothing but bad lines.
const badLinesShown = 10

// badLines tells of the lines that a load refused: the first ones as they come,
// how many more there are at the end, and all of them to a file if one is named.
type badLines struct {
	shown io.Writer
	count int

	name string // of the file; "" for none
	file *os.File
	all  *bufio.Writer
}

// openBadLines makes the file, if one is named, anew. It must not be the one that
// is loaded, as info describes it, or nil.
func openBadLines(shown io.Writer, name string, loaded os.FileInfo) (*badLines, error) {
	b := &badLines{shown: shown, name: name}
	if name == "" {
		return b, nil
	}
	if info, err := os.Stat(name); err == nil && size(loaded) >= 0 && os.SameFile(info, loaded) {
		return nil, cli.UsageError(fmt.Sprintf("--errors %s: that is what is loaded, and would be overwritten", name))
	}
	var err error
	if b.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, fmt.Errorf("--errors: %w", err)
	}
	b.all = bufio.NewWriter(b.file)
	return b, nil
}

// add tells of one line; one call at a time. What can't be written is told by
// close.
func (b *badLines) add(line int, reason error) {
	text := fmt.Sprintf("line %d: %s\n", line, cli.OneLine(reason.Error()))
	if b.count++; b.count <= badLinesShown {
		_, _ = io.WriteString(b.shown, "producer: "+text) // nowhere to say so
	}
	if b.all != nil {
		_, _ = b.all.WriteString(text) // bufio keeps the error for close
	}
}

// close says how many lines were not shown, and ends the file.
func (b *badLines) close() error {
	if more := b.count - badLinesShown; more > 0 {
		where := "--errors FILE takes them all"
		if b.name != "" {
			where = "all are in " + b.name
		}
		_, _ = fmt.Fprintf(b.shown, "producer: %d more bad lines are not shown; %s\n", more, where)
	}
	if b.file == nil {
		return nil
	}
	if err := errors.Join(b.all.Flush(), b.file.Close()); err != nil {
		return fmt.Errorf("--errors: not all bad lines are written: %w", err)
	}
	return nil
}
