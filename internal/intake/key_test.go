package intake

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
)

// TestTheKeyNamesTheTask: equal keys are one task, and a message without one is a task of its
// own. The message_id arrives as it was published.
func TestTheKeyNamesTheTask(t *testing.T) {
	t.Parallel()
	send := []amqp.Publishing{
		newMessage("m", HeaderIn, "1h", "order", "o-1"), newMessage("m", HeaderIn, "1h", "order", int32(7)),
		newMessage("n", HeaderIn, "1h", "order", "o-1"), newMessage("m", HeaderIn, "1h"), newMessage("m", HeaderIn, "1h"),
	}
	for name, row := range map[string]struct {
		key  Key
		ids  []string // of the tasks that have one
		want int      // tasks
	}{
		"message_id": {Key{}, []string{"m", "n"}, 2},
		"none":       {Key{None: true}, nil, 5},
		"a header":   {Key{Header: "order"}, []string{"o-1", "7"}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.key = row.key
			h.start()
			for _, p := range send {
				h.publish(p)
			}
			h.settled()
			all := h.records()
			check.Equal(t, "tasks", len(all), row.want)
			for _, id := range row.ids {
				if _, there := all[id]; !there {
					t.Errorf("no task %s", id)
				}
			}
			for id, s := range all {
				if got := s.message.Properties.MessageID; got != "m" && got != "n" {
					t.Errorf("task %s has the message_id %q", id, got)
				}
			}
		})
	}
}

// TestAMessageWithoutItsKeyIsRefused: a cancel needs the key, and a key is text or an integer.
func TestAMessageWithoutItsKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		key     Key
		message amqp.Publishing
		says    string
	}{
		{Key{None: true}, newMessage("m", HeaderVerb, Cancel), "intake.key is none"},
		{Key{Header: "order"}, newMessage("m", HeaderVerb, Cancel), "header order: must be given"},
		{Key{Header: "order"}, newMessage("m", "order", true), "header order: must be text or an integer"},
		{Key{Header: "order"}, newMessage("m", "order", "\xff"), "id: must be 1 to 255 bytes of valid UTF-8"},
	} {
		t.Run(row.says, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.key = row.key
			h.start()
			h.publish(row.message)
			d := h.taken(refused)
			if why := fmt.Sprint(d.Headers[HeaderRefused]); !strings.Contains(why, row.says) {
				t.Errorf("refused: %s", why)
			}
		})
	}
}

// TestABatchTakesAllVerbs: schedules, cancels and moves of different IDs arrive by turns.
func TestABatchTakesAllVerbs(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const tasks = 300
	for i := range tasks {
		h.publish(newMessage(fmt.Sprint("moved-", i), HeaderIn, "1h"))
		h.publish(newMessage(fmt.Sprint("cancelled-", i), HeaderIn, "1h"))
	}
	for i := range tasks {
		h.publish(newMessage(fmt.Sprint("new-", i), HeaderIn, "3h"))
		h.publish(newMessage(fmt.Sprint("moved-", i), HeaderVerb, Move, HeaderIn, "2h"))
		h.publish(newMessage(fmt.Sprint("cancelled-", i), HeaderVerb, Cancel))
	}
	h.start()
	h.settled()
	all := h.records()
	check.Equal(t, "tasks", len(all), 2*tasks)
	for id, s := range all {
		want := 3.0
		if id[0] == 'm' {
			want = 2
		}
		if got := s.delay().Hours(); got < want-0.1 || got > want+0.1 {
			t.Errorf("%s is due in %.1f hours, want %v", id, got, want)
		}
	}
}
