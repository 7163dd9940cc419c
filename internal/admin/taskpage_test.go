package admin

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestPagesStayWhileTasksGo: the pages have each task once, in the order of the next
// attempt, parked tasks last. A page is the same although the tasks of the page before are
// gone.
func TestPagesStayWhileTasksGo(t *testing.T) {
	t.Parallel()
	a := newAttic(t)
	p := fixture.Placement(t, a.topic)
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	var want []string
	for i := range 9 {
		id := fmt.Sprintf("w-%d", i)
		when := at.Add(time.Duration(i/3) * time.Second) // three each are due at the same time
		fixture.Store(t, a.topic, shard.Entry{ID: id, When: task.At(when), Body: []byte{0}})
		want = append(want, id)
	}
	for _, id := range []string{"p-1", "p-2", "p-3"} {
		fixture.Store(t, a.topic, shard.Entry{ID: id, When: task.Now(), Body: []byte{0}})
		a.park(p.New(id), id)
		want = append(want, id)
	}
	var got []string
	tasks, after := Tasks{Topic: a.topic, Limit: 4}, TaskCursor{}
	for more := true; more; {
		page, there, err := tasks.Page(t.Context(), after)
		check.OK(t, err)
		if len(page) == 0 || len(page) > 4 {
			t.Fatalf("a page of %d tasks", len(page))
		}
		for _, l := range page {
			got = append(got, l.ID)
			if l.State == task.Waiting {
				deleted := a.topic.Delete(t.Context(), p, at.Add(time.Hour).UnixMilli(),
					[]shard.Deletion{{Names: shard.Names{Shard: p.New(l.ID), IDs: []string{l.ID}}}})
				check.OK(t, errors.Join(deleted...))
			}
		}
		last := page[len(page)-1]
		more, after = there, TaskCursor{last.Next, last.ID}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestFindTask returns the task with its payload, or says that there is none.
func TestFindTask(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, p := r.Serve(t, 4)
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00abc"), "a")...)
	found, at, err := FindTask(t.Context(), topic, "a")
	check.OK(t, err)
	check.Equal(t, "payload", string(found.Payload), "abc")
	check.Equal(t, "shard", at, p.New("a"))
	if _, _, err := FindTask(t.Context(), topic, "b"); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("another: %v", err)
	}
}
