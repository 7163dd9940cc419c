package router

import (
	"errors"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// TestAnUnknownTopicMayBeATypo: the error names the topic that was likely meant, if the user
// may list them, and stays a task.ErrUnknownTopic.
func TestAnUnknownTopicMayBeATypo(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for name, want := range map[string]string{"order": "; did you mean topic orders?", "bills": ""} {
		for role, may := range map[string]bool{"operator": true, "producer": false} {
			store, err := shard.New(g.as(role), "duefleet")
			g.ok(err)
			if role == "producer" { // of all topics, which it may not list
				g.ok(g.rdb.Do(g.ctx(), "ACL", "SETUSER", "duefleet-producer", "%R~duefleet:placement:*", "-smembers").Err())
			}
			_, read := New(store).Topic(name).Get(g.ctx(), "a")
			_, listed := store.Topic(name).Listing(shard.Wanted{}).Next(g.ctx())
			for _, err := range []error{read, listed, store.Topic(name).EachID(g.ctx(), "", nil)} {
				want := want
				if !may {
					want = ""
				}
				said := strings.Contains(err.Error(), "did you mean") == (want != "")
				if !errors.Is(err, task.ErrUnknownTopic) || !strings.HasSuffix(err.Error(), want) || !said {
					t.Errorf("%s of %s: got %v, want %q", name, role, err, want)
				}
			}
		}
	}
}
