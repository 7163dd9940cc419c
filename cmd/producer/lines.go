package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/duefleet/duefleet/task"
)

// maxLine is the longest line, in bytes, that can hold a valid task: every byte
// of its text as a six byte \u escape, and room for the fields' names.
func maxLine(maxPayload int) int {
	return 6*(maxPayload+task.MaxID+task.MaxContentType+task.MaxHeaderBytes) + 4<<10
}

// tooLongError is a line beyond the limit. It was read over to its end, and the
// next line can be read.
type tooLongError struct{ size, limit int }

func (e *tooLongError) Error() string {
	return fmt.Sprintf("line: must be at most %d bytes (it follows from max_payload); got %d bytes", e.limit, e.size)
}

// lineReader reads lines in constant memory: the buffer it returns is its own
// and holds one line at a time.
type lineReader struct {
	source *bufio.Reader
	limit  int
	buf    []byte
	// number of the line next returned last, from 1.
	number int
	// size of that line in bytes, its end included.
	size int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{source: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns a line without its end, valid until the next call. A last line
// needs no end. The errors: a tooLongError, io.EOF, or the reader's own.
func (l *lineReader) next() ([]byte, error) {
	l.buf, l.size = l.buf[:0], 0
	for {
		part, err := l.source.ReadSlice('\n')
		l.size += len(part)
		if err == nil && l.size == len(part) && l.size <= l.limit {
			l.number++
			return bytes.TrimRight(part, "\r\n"), nil // the whole line, without a copy
		}
		if l.size <= l.limit {
			l.buf = append(l.buf, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && (!errors.Is(err, io.EOF) || l.size == 0) {
			return nil, err
		}
		l.number++
		if l.size > l.limit {
			return nil, &tooLongError{size: l.size, limit: l.limit}
		}
		return bytes.TrimRight(l.buf, "\r\n"), nil
	}
}
