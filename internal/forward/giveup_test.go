package forward

import (
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
)

// TestWhatIsGivenUpKeepsItsPlaceAndNoPayload: otherwise a queue that never confirms would
// keep half a window of payloads in memory for as long as the channel lasts.
func TestWhatIsGivenUpKeepsItsPlaceAndNoPayload(t *testing.T) {
	t.Parallel()
	c := newConfirms(2, time.Hour)
	m := &Message{Task: task.Task{ID: "o-1", Payload: []byte("payload")}}
	seq, v := c.place(m, time.Nanosecond, 1)
	if v != placed {
		t.Fatalf("not placed: %v", v)
	}
	for c.since(time.Now()) <= c.slot(seq).deadline { // its deadline passes
	}
	results := c.expire(nil)
	if len(results) != 1 || results[0].Message != m || string(m.Task.Payload) != "payload" {
		t.Fatalf("given up: %+v", results)
	}
	kept := c.slot(seq).message
	if kept == nil || kept.Task.ID != "o-1" {
		t.Fatalf("its place holds %+v: a late return would not be known for what it is", kept)
	}
	if kept.Task.Payload != nil {
		t.Error("its place keeps the payload")
	}
}
