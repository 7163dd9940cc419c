package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestWhatHappenedToATask is on its page, also when it isn't stored any more. The search leads
// there.
func TestWhatHappenedToATask(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	topic, p := r.Serve(t, 2)
	s := serve(t, r.Store, Config{Settings: settings()})
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00"), "unseen")...)
	contains := func(what, page, want string) {
		t.Helper()
		check.Equal(t, what+" has "+want, strings.Contains(page, want), true)
	}
	check.OK(t, topic.KeepEvents(t.Context(), p, time.Hour))
	fixture.Store(t, topic, fixture.Entries(task.In(time.Hour), []byte("\x00"), hostileID, "gone")...)
	check.OK(t, router.New(r.Store).Topic("orders").Cancel(t.Context(), "gone"))

	_, page, _ := s.ask(http.MethodGet, taskLink("orders", hostileID), nil)
	contains("page of a stored task", page, "<th scope=\"row\">scheduled</th>")
	_, page, _ = s.ask(http.MethodGet, taskLink("orders", "unseen"), nil)
	contains("page of a task from before", page, "None is known.")
	status, page, _ := s.ask(http.MethodGet, taskLink("orders", "gone"), nil)
	check.Equal(t, "status of a task that is gone", status, http.StatusOK)
	contains("page of a task that is gone", page, "<th scope=\"row\">cancelled</th>")
	contains("page of a task that is gone", page, "isn't stored")
	status, _, _ = s.ask(http.MethodGet, taskLink("orders", "never"), nil)
	check.Equal(t, "status of a task that never was", status, http.StatusNotFound)

	_, page, _ = s.ask(http.MethodGet, "/tasks?topic=orders&id=gone", nil)
	contains("search for a task that is gone", page, strings.ReplaceAll(taskLink("orders", "gone"), "&", "&amp;"))
	_, page, _ = s.ask(http.MethodGet, "/tasks?topic=orders&id=never", nil)
	check.Equal(t, "a link for a task that never was", strings.Contains(page, "What happened to it"), false)
}
