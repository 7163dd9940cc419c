package conform

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxBulk is the longest string of a command or reply, in bytes. Redis has the same
// limit.
const maxBulk = 512 << 20

// errProtocol is an error for data that isn't RESP.
var errProtocol = errors.New("not the Redis protocol")

// value is one element of RESP 2 or 3.
type value struct {
	kind  byte   // the first byte of its line
	text  string // for a string, a number or an error
	items []value
	raw   []byte // the whole element as on the wire
}

// readCommand reads a command in the form that clients use: an array of strings.
func readCommand(r *bufio.Reader) (args []string, raw []byte, err error) {
	v, err := readValue(r)
	if err != nil {
		return nil, nil, err
	}
	if v.kind != '*' || len(v.items) == 0 {
		return nil, nil, fmt.Errorf("%w: a command is an array of strings", errProtocol)
	}
	for _, item := range v.items {
		args = append(args, item.text)
	}
	return args, v.raw, nil
}

// readValue reads one element with all its parts.
func readValue(r *bufio.Reader) (value, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return value{}, err
	}
	if len(line) < 3 || !strings.HasSuffix(line, "\r\n") {
		return value{}, fmt.Errorf("%w: %.40q", errProtocol, line)
	}
	v := value{kind: line[0], text: line[1 : len(line)-2], raw: []byte(line)}
	switch v.kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return v, nil
	case '$', '=', '!':
		return v.readBulk(r)
	case '*', '~', '>':
		return v.readItems(r, 1)
	case '%', '|':
		return v.readItems(r, 2)
	}
	return v, fmt.Errorf("%w: %.40q", errProtocol, line)
}

func (v value) readBulk(r *bufio.Reader) (value, error) {
	size, err := strconv.Atoi(v.text)
	if err != nil || size > maxBulk {
		return v, fmt.Errorf("%w: a string of %q bytes", errProtocol, v.text)
	}
	v.text = ""
	if size < 0 { // a null string
		v.kind = '_'
		return v, nil
	}
	head := len(v.raw)
	v.raw = append(v.raw, make([]byte, size+2)...)
	if _, err := io.ReadFull(r, v.raw[head:]); err != nil {
		return v, err
	}
	v.text = string(v.raw[head : head+size])
	return v, nil
}

// readItems reads the elements of an array or of a map, which has two for each entry. An
// attribute comes before the element that it belongs to, and is kept with it.
func (v value) readItems(r *bufio.Reader, each int) (value, error) {
	count, err := strconv.Atoi(v.text)
	if err != nil {
		return v, fmt.Errorf("%w: %q elements", errProtocol, v.text)
	}
	for range count * each {
		item, err := readValue(r)
		if err != nil {
			return v, err
		}
		v.items, v.raw = append(v.items, item), append(v.raw, item.raw...)
	}
	if v.kind != '|' {
		return v, nil
	}
	next, err := readValue(r)
	next.raw = append(v.raw, next.raw...)
	return next, err
}

// status returns a script's answer in one word: the first of its array, the kind of its
// error, or the number.
func (v value) status() string {
	switch {
	case v.kind == '*' && len(v.items) > 0:
		return v.items[0].text
	case v.kind == '-', v.kind == '!':
		word, _, _ := strings.Cut(v.text, " ")
		return word
	}
	return v.text
}

// command returns a command in RESP.
func command(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}
