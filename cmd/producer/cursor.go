package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// cursor reads the JSON of one line, an object of strings and the like, from front to back.
// It knows as much of JSON as such a line needs: encoding/json's tokens make
// five times the allocations, and its Unmarshal does not tell which fields were
// given, or given twice.
type cursor struct {
	line []byte
	at   int
}

// object reads an object, and calls read for every key with the cursor in front
// of its value. The name, which is empty for the line itself, is for errors.
func (c *cursor) object(name string, read func(key string) error) error {
	if !c.take('{') {
		return c.unexpected(name, "a JSON object")
	}
	if c.take('}') {
		return nil
	}
	for {
		if c.peek() != '"' {
			return c.malformed("want a field's name in double quotes")
		}
		key, err := c.text("")
		if err != nil {
			return err
		}
		if !c.take(':') {
			return c.malformed("want a colon")
		}
		if err := read(key); err != nil {
			return err
		}
		if c.take('}') {
			return nil
		}
		if !c.take(',') {
			return c.malformed("want a comma or the object's end")
		}
	}
}

// text reads a string.
func (c *cursor) text(name string) (string, error) {
	if c.peek() != '"' {
		return "", c.unexpected(name, "a string")
	}
	start, plain := c.at, true
	for c.at++; c.at < len(c.line); c.at++ {
		switch b := c.line[c.at]; {
		case b == '"':
			c.at++
			if plain {
				return string(c.line[start+1 : c.at-1]), nil
			}
			var s string
			if err := json.Unmarshal(c.line[start:c.at], &s); err != nil {
				return "", fmt.Errorf("malformed JSON: %w", err)
			}
			return s, nil
		case b == '\\':
			plain = false
			c.at++
		case b < ' ':
			return "", c.malformed("a control character in a string needs an escape")
		}
	}
	return "", c.malformed("the string has no end")
}

// number reads a number as it is written.
func (c *cursor) number() (string, error) {
	c.peek()
	start := c.at
	for c.at < len(c.line) && isNumeric(c.line[c.at]) {
		c.at++
	}
	if !json.Valid(c.line[start:c.at]) {
		return "", c.malformed("not a number")
	}
	return string(c.line[start:c.at]), nil
}

// boolean reads true or false as it is written.
func (c *cursor) boolean(name string) (string, error) {
	c.peek()
	for _, word := range []string{"true", "false"} {
		if bytes.HasPrefix(c.line[c.at:], []byte(word)) {
			c.at += len(word)
			return word, nil
		}
	}
	return "", c.unexpected(name, "true or false")
}

// end checks that nothing follows.
func (c *cursor) end() error {
	if c.peek() != 0 || c.at < len(c.line) {
		return c.malformed("more than one object on the line")
	}
	return nil
}

// take steps over white space, and over b if it is next.
func (c *cursor) take(b byte) bool {
	if c.peek() != b {
		return false
	}
	c.at++
	return true
}

// peek steps over white space and returns what is next; 0 at the end.
func (c *cursor) peek() byte {
	for ; c.at < len(c.line); c.at++ {
		switch b := c.line[c.at]; b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
	return 0
}

func (c *cursor) malformed(problem string) error {
	if c.at >= len(c.line) {
		return fmt.Errorf("malformed JSON: the line ends too soon: %s", problem)
	}
	return fmt.Errorf("malformed JSON at byte %d: %s", c.at+1, problem)
}

// unexpected says which type a field wants, and which it has, never its value.
func (c *cursor) unexpected(name, want string) error {
	got, known := map[byte]string{
		'"': "a string", '{': "an object", '[': "an array", 't': "true or false", 'f': "true or false", 'n': "null",
	}[c.peek()]
	if isNumeric(c.peek()) {
		got, known = "a number", true
	}
	if !known {
		return c.malformed("want " + want)
	}
	return inField(name, fmt.Errorf("want %s, got %s", want, got))
}

func isNumeric(b byte) bool {
	return b >= '0' && b <= '9' || b == '-' || b == '+' || b == '.' || b == 'e' || b == 'E'
}
