package shard

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/faults"
)

// bytesOf returns how many bytes of text the reply to a command has.
func bytesOf(cmd redis.Cmder) (n int) {
	var values []any
	switch cmd := cmd.(type) {
	case *redis.Cmd:
		values, _ = cmd.Val().([]any)
	case *redis.SliceCmd:
		values = cmd.Val()
	}
	for _, v := range values {
		text, _ := v.(string)
		n += len(text)
	}
	return n
}

// TestParkedTasksAreListedWithoutTheirPayloads: a page of large tasks is a small reply,
// and still has what `parked ls` shows.
func TestParkedTasksAreListedWithoutTheirPayloads(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	const tasks, size = 60, 256 << 10
	payload := []byte(strings.Repeat("x", size))
	bodies := map[string][]byte{
		"plain": EncodeBody(&task.Task{Payload: payload}),
		"headers": EncodeBody(&task.Task{Payload: payload, ContentType: "application/json",
			Headers: map[string]string{"a": strings.Repeat("v", 300), "b": ""}}),
		"options": EncodeBody(&task.Task{Payload: payload, Options: task.Options{RoutingKey: "r", Priority: 7}}),
		"empty":   EncodeBody(&task.Task{}),
	}
	for i := range tasks {
		bodies[string(rune('A'+i))] = bodies["plain"]
	}
	for id, body := range bodies {
		check.OK(c.t, c.tryPut(c.p, Put{Entries: []Entry{{ID: id, When: task.Now(), Body: body}}}).Err)
		c.park(id, "reason of "+id)
	}
	whole := map[string]Stored{}
	for id := range bodies {
		whole[id] = c.read(id)
	}
	largest := 0
	faults.After(c.rdb, func(r faults.Request) { largest = max(largest, bytesOf(r.Commands[0])) })
	list, seen := c.Shard(0).Parked(), 0
	for {
		page, err := list.Next(c.t.Context())
		check.OK(c.t, err)
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			was := whole[r.ID]
			check.Equal(t, "reason", r.Reason, "reason of "+r.ID)
			check.Equal(t, "bytes of "+r.ID, r.PayloadBytes, len(was.Payload))
			check.Equal(t, "content type of "+r.ID, r.ContentType, was.ContentType)
			check.Equal(t, "headers of "+r.ID, len(r.Headers), len(was.Headers))
			check.Equal(t, "options of "+r.ID, r.Options, was.Options)
			check.Equal(t, "due of "+r.ID, r.Due, was.Due)
			check.Equal(t, "error", r.Err, nil)
			seen++
		}
	}
	check.Equal(t, "seen", seen, len(bodies))
	if most := 64 << 10; largest > most {
		t.Errorf("one answer took %d bytes, want at most %d", largest, most)
	}
}

// TestAListedRecordSaysWhatIsWrongWithItsBody, as a whole record does, although only its
// beginning is read.
func TestAListedRecordSaysWhatIsWrongWithItsBody(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	c.put(task.Now(), "good")
	c.park("good", "why")
	good := c.read("good").raw
	at := strings.Index(good, "\x00payload of good")
	if at < 0 {
		t.Fatal("the body is elsewhere")
	}
	payload := strings.Repeat("x", 1000)
	for id, body := range map[string]string{
		"cut in its content type": "\x01\x09appl",
		"cut in a header":         "\x01\x00\x02\x01a\x00\x01b\x01c\xff\xffd",
		"no body":                 "",
		"of an unknown option":    "\x01\x00\x01\x14x-duefleet-something\x00\x01v" + payload,
		"good with headers":       "\x01\x00\x01\x01a\x00\x02vv" + payload,
	} {
		c.plant(id, good[:at]+body, 1)
		_, want := DecodeRecord("orders", id, good[:at]+body)
		c.setAside(id)
		page, err := c.Shard(0).Parked().Next(c.t.Context())
		check.OK(c.t, err)
		for _, r := range page {
			if r.ID == id && (r.Err == nil) != (want == nil) || r.ID == id && want != nil && r.Err.Error() != want.Error() {
				t.Errorf("%s: got %v, want %v", id, r.Err, want)
			}
		}
		check.Equal(t, "listed", len(page), 2)
		c.takeAway(id)
	}
}
