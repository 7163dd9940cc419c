package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRulesFromOutside: input that breaks a rule gets one line with the field, the rule
// and the size, and nothing is written. Input just within the rules is accepted.
func TestRulesFromOutside(t *testing.T) {
	t.Parallel()
	within := [][]string{
		{"--id", strings.Repeat("x", 255)},
		{"--id", strings.Repeat("ü", 127) + "x"},
		{"--id", "any \t\n\x01 ☃ 'characters' {}"},
		{"--content-type", strings.Repeat("x", 255)},
		headers(32),
		{"--header", strings.Repeat("k", 128) + "=v"},
		{"--header", "k=" + strings.Repeat("v", 65000)},
		{"--header", "x-due=v"},
		{"--header", "k="},
		{"--at", "31536000000"},
		{"--in", "0s"},
		{"--in", "-1h"},
		{"--in", "36525d"},
		{"--at", time.Now().AddDate(99, 11, 0).UTC().Format(time.RFC3339)},
	}
	beyond := []struct {
		args []string
		want string
	}{
		{[]string{"--topic", ""}, "topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 0 bytes"},
		{[]string{"--topic", strings.Repeat("x", 65)}, "topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 65 bytes"},
		{[]string{"--topic", "or ders"}, "topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 7 bytes"},
		{[]string{"--topic", "ördérs"}, "topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 8 bytes"},
		{[]string{"--id", ""}, "id: must be 1 to 255 bytes of valid UTF-8; got 0 bytes"},
		{[]string{"--id", strings.Repeat("x", 256)}, "id: must be 1 to 255 bytes of valid UTF-8; got 256 bytes"},
		{[]string{"--id", strings.Repeat("ü", 128)}, "id: must be 1 to 255 bytes of valid UTF-8; got 256 bytes"},
		{[]string{"--id", "o\xff1"}, "id: must be 1 to 255 bytes of valid UTF-8; got 3 bytes that are not valid UTF-8"},
		{[]string{"--content-type", strings.Repeat("x", 256)},
			"content_type: must be 0 to 255 bytes of valid UTF-8; got 256 bytes"},
		{headers(33), "headers: must be at most 32; got 33 headers"},
		{[]string{"--header", strings.Repeat("k", 129) + "=v"},
			"header key: must be 1 to 128 bytes of valid UTF-8; got 129 bytes"},
		{[]string{"--header", "=v"}, "header key: must be 1 to 128 bytes of valid UTF-8; got 0 bytes"},
		{[]string{"--header", "CC=a"}, `header key: must not be CC or BCC, which RabbitMQ routes by; got "CC" (2 bytes)`},
		{[]string{"--header", "x-duefleet-due=1"},
			`header key: must not begin with x-duefleet-; got "x-duefleet-due" (14 bytes)`},
		{[]string{"--header", "k=\xff"}, "header k: must be valid UTF-8; got 1 byte"},
		{[]string{"--header", "k=" + strings.Repeat("v", 65536)},
			"headers: must be at most 65536 bytes of keys and values together; got 65537 bytes"},
		{[]string{"--in", "36525d1ms"}, "due: must be at most 100 years ahead; got 876600h0m0.001s"},
		{[]string{"--in", "30us"}, "due: must be at least 1ms"},
		{[]string{"--at", "0"},
			"due: must be in 1971 or later: an earlier time is one that was never set; got 1970-01-01T00:00:00Z"},
		{[]string{"--at", "-1"}, "due: must be in 1971 or later"},
		{[]string{"--at", "0001-01-01T00:00:00Z"}, "due: must be given"},
		{[]string{"--at", "1970-06-01T00:00:00Z"}, "due: must be in 1971 or later"},
		{[]string{"--at", "9999-12-31T23:59:59Z"}, "due: must be at most 100 years ahead; got 9999-12-31T23:59:59Z"},
		{[]string{"--at", "9223372036854775807"}, "due: must be at most 100 years ahead; got 292278994-08-17"},
	}
	c := newSandbox(t)
	for i, args := range within {
		if r := c.run("", withDefaults(fmt.Sprintf("o-%d", i), args)...); r.code != 0 {
			t.Errorf("%.60q: exit code %d, %s", args, r.code, r.stderr)
		}
	}
	if got := c.stored(); got != len(within) {
		t.Errorf("%d tasks of %d are stored", got, len(within))
	}
	before := c.stored()
	for _, test := range beyond {
		r := c.run("", withDefaults("bad", test.args)...)
		wantError(t, r, 1, test.want)
		if r.stdout != "" || c.stored() != before {
			t.Errorf("%.60q: printed %q, %d tasks are stored, want %d", test.args, r.stdout, c.stored(), before)
		}
	}
}

// TestPayloadRule: the largest payload is accepted from every source, and one byte more
// from none.
func TestPayloadRule(t *testing.T) {
	t.Parallel()
	const most = 256 << 10
	c := newSandbox(t)
	for size, code := range map[int]int{most: 0, most + 1: 1} {
		payload := strings.Repeat("x", size)
		file := writeFile(t, "payload", payload)
		before := c.stored()
		for name, args := range map[string][]string{"file": {"--payload-file", file}, "input": {"--payload-file", "-"}} {
			r := c.run(payload, withDefaults(name, args)...)
			if r.code != code {
				t.Errorf("%s of %d bytes: exit code %d, %s", name, size, r.code, r.stderr)
			}
			if code != 0 {
				wantError(t, r, 1, "payload: must be at most 262144 bytes (max_payload); got ")
			}
		}
		if code != 0 && c.stored() != before {
			t.Errorf("%d tasks are stored, want %d", c.stored(), before)
		}
	}
}

// TestRescheduleRule: a due time that breaks a rule leaves the task as it is.
func TestRescheduleRule(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	c.must("schedule", "--topic", "orders", "--id", "o-1", "--at", "4099802400000")
	for _, row := range []struct {
		flag, value, want string
		code              int
	}{
		{"--in", "36600d", "due: must be at most 100 years ahead", 1},
		{"--at", "0", "due: must be in 1971 or later", 1},
		{"--in", "0", "want a duration with a unit, as in 30s, 30m or 2d; 0s is now", 2},
		{"--in", "-0", "want a duration with a unit", 2},
	} {
		wantError(t, c.run("", "reschedule", "--topic", "orders", "--id", "o-1", row.flag, row.value), row.code, row.want)
	}
	if got := c.must("get", "--topic", "orders", "--id", "o-1"); got["due_ms"] != json.Number("4099802400000") {
		t.Errorf("due %v", got["due_ms"])
	}
}

// TestSameIDInAnotherTopic: it is another task.
func TestSameIDInAnotherTopic(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	if _, err := c.orders.Store().Topic("mails").Ensure(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.must("schedule", "--topic", "orders", "--id", "1", "--in", "1h", "--payload", "order")
	c.must("schedule", "--topic", "mails", "--id", "1", "--in", "1h", "--payload", "mail")
	c.must("cancel", "--topic", "mails", "--id", "1")
	if got := c.payload("1"); got != "order" {
		t.Errorf("payload %q", got)
	}
}

// withDefaults completes a schedule command line with the flags that args lack.
func withDefaults(id string, args []string) []string {
	all := append([]string{"schedule"}, args...)
	for _, flag := range [][2]string{{"--topic", "orders"}, {"--id", id}} {
		if !slices.Contains(args, flag[0]) {
			all = append(all, flag[0], flag[1])
		}
	}
	if !slices.Contains(args, "--at") && !slices.Contains(args, "--in") {
		all = append(all, "--in", "1h")
	}
	return all
}

func headers(n int) []string {
	var args []string
	for i := range n {
		args = append(args, "--header", fmt.Sprintf("k%d=v", i))
	}
	return args
}
