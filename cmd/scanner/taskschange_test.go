package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// listed returns the listed tasks of topic orders by their IDs.
func (o *operator) listed() map[string]map[string]any {
	o.t.Helper()
	code, text := o.call("tasks", "ls", "orders", "-o", "json")
	var all []map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil || code != cli.Done {
		o.t.Fatalf("code %d, %v: %s", code, err, text)
	}
	byID := map[string]map[string]any{}
	for _, one := range all {
		byID[one["id"].(string)] = one
	}
	return byID
}

// retry stores a due task and gives it back for a retry after an hour.
func (o *operator) retry(id string) {
	o.t.Helper()
	o.put(task.Now(), id)
	at := o.store.Topic("orders").Shard(0)
	b, err := at.Claim(o.t.Context(), shard.Claim{Claimant: "w", Request: id, Limit: 1, Lease: time.Hour})
	if err != nil || len(b.Tasks) != 1 {
		o.t.Fatalf("claimed %+v, %v", b.Tasks, err)
	}
	r := shard.Release{Lease: shard.Lease{ID: id, Token: b.Tasks[0].Token}, Attempted: true, Delay: time.Hour,
		Reason: "returned: 312 NO_ROUTE"}
	if n, err := at.Release(o.t.Context(), []shard.Release{r}); n != 1 || err != nil {
		o.t.Fatalf("released %d, %v", n, err)
	}
}

// TestTasksAreChangedForPeopleAndScripts: named tasks without a question, others with
// --yes. A dry run changes nothing.
func TestTasksAreChangedForPeopleAndScripts(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	tasks := func(more ...string) []string { return append([]string{"tasks"}, more...) }
	o.wants(cli.NotFound, "unknown topic", tasks("run-now", "orders", "--all", "--dry-run")...)
	o.serve("orders", 1)
	for i := range 3 {
		o.retry(fmt.Sprintf("r-%d", i))
	}
	o.put(task.In(time.Hour), "w-1", "w-2")
	o.wants(cli.Usage, "this would run now all that is in topic orders: 5 tasks: without a terminal to ask on it needs "+
		"--yes; nothing was made due", tasks("run-now", "orders", "--all")...)
	o.wants(cli.Usage, "this would run now 2 tasks in topic orders in state retrying, in about 2s: without",
		tasks("run-now", "orders", "--state", "retrying", "--limit", "2", "--rate", "1")...)
	o.wants(cli.Done, "would run now 3 tasks in topic orders in state retrying; 0 skipped; a dry run, nothing was "+
		"made due\n",
		tasks("run-now", "orders", "--state", "retrying", "--dry-run")...)
	o.wants(cli.Done, `{"failed":0,"matched":2,"skipped":0,"would_change":2}`+"\n",
		tasks("cancel", "orders", "--id-prefix", "w-", "--dry-run", "-o", "json")...)
	o.wants(cli.Done, "made due 1; 0 skipped, 0 failed\n", tasks("run-now", "orders", "r-0")...)
	o.wants(cli.Done, `{"matched":3,"changed":2,"skipped":1,"failed":0}`+"\n",
		tasks("run-now", "orders", "--state", "retrying", "--yes", "-o", "json")...)
	one := o.listed()["r-1"]
	if one["attempts"] != 1.0 || one["reason"] != "returned: 312 NO_ROUTE" || one["state"] != "retrying" {
		t.Errorf("run now: %v", one)
	}
	o.wants(cli.Done, "moved 1; 0 skipped", tasks("move", "orders", "w-1", "--at", "2027-12-01T10:00:00Z")...)
	o.wants(cli.Done, "moved 1; 0 skipped", tasks("move", "--topic", "orders", "--id-prefix", "w-1", "--by=-1d",
		"--yes")...)
	if due := o.listed()["w-1"]["due"]; due != "2027-11-30T10:00:00.000Z" {
		t.Errorf("moved to %v", due)
	}
	o.wants(cli.Done, "cancelled 2; 0 skipped, 0 failed\n", tasks("cancel", "orders", "--id-prefix", "w", "-y")...)
	o.wants(cli.NotFound, `scanner: topic orders: no such task: "w-1"`, tasks("cancel", "orders", "w-1")...)
	o.wants(cli.NotFound, "cancelled 1; 0 skipped, 0 failed\n", tasks("cancel", "orders", "w-1", "r-0")...)
	if all := o.listed(); len(all) != 2 {
		t.Errorf("left: %v", all)
	}
}

// TestAMoveGoesOnWithResume: a limit stands for the interruption.
func TestAMoveGoesOnWithResume(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	o.serve("orders", 2)
	at := time.UnixMilli(4099802400000)
	o.put(task.At(at), "a", "b", "c")
	const run = "0123456789ab"
	move := []string{"tasks", "move", "orders", "--all", "--yes", "--by", "1h", "--resume", run}
	o.wants(cli.Done, "moved 2; ", append(move, "--limit", "2")...)
	o.wants(cli.Done, "moved 1; 2 skipped, 0 failed\n", move...)
	o.wants(cli.Done, "moved 0; 3 skipped, 0 failed\n", move...)
	for id, one := range o.listed() {
		if one["due_ms"] != float64(at.Add(time.Hour).UnixMilli()) {
			t.Errorf("%s is due at %v", id, one["due"])
		}
	}
	err := errors.Join(
		o.rdb.HSet(t.Context(), o.prefix+":task:{orders:0}", "spoilt", "\x10cut").Err(),
		o.rdb.ZAdd(t.Context(), o.prefix+":due:{orders:0}", redis.Z{Score: 1, Member: "spoilt"}).Err(),
	)
	if err != nil {
		t.Fatal(err)
	}
	o.wants(cli.Failed, "go on with --resume "+run, move...)
}

// TestMistakesInAChangeOfTasks: the verb reports them before anything changes.
func TestMistakesInAChangeOfTasks(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "")
	o.serve("orders", 1)
	for part, line := range map[string]string{
		"name a topic":                        "run-now",
		"give IDs or --all, or --state":       "cancel orders",
		"IDs stand alone":                     "cancel orders a --all",
		"--state \"parked\": must be waiting": "run-now orders --state parked",
		"--limit 0: must be at least 1":       "run-now orders --all --limit 0",
		"--rate -1: must be at least 1":       "run-now orders --all --rate=-1",
		"give one of --in, --at and --by":     "move orders a --in 1h --by 1h",
		"--by \"0s\": moves nothing":          "move orders a --by 0s",
		"--by \"1\": want a duration":         "move orders a --by 1",
		"--at \"soon\": ":                     "move orders a --at soon",
		"--in \"0\": ":                        "move orders a --in 0",
		"--resume \"x\": want the 12":         "move orders a --in 1h --resume x",
		"name a command: ls, run-now, move":   "",
	} {
		o.wants(cli.Usage, part, append([]string{"tasks"}, strings.Fields(line)...)...)
	}
	o.wants(cli.Usage, "give one of --in, --at and --by", "tasks", "move", "orders", "a")
	o.wants(cli.Failed, "topic: must be 1 to 64", "tasks", "cancel", "a b", "--all")
}
