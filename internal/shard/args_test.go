package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
)

// accepted is one call that its script takes, and by their place the arguments
// that it must refuse instead.
type accepted struct {
	keys []string
	args []any
	bad  map[int][]any
	// open: more arguments, one by one, are more tasks.
	open bool
}

// The calls are about tasks that are there: carried out only in part, each of them
// leaves something behind.
func acceptedCalls(c *sandbox) map[string]accepted {
	held := leases(c.claimFor(time.Hour))[0]
	more := Placement{c.p.Epoch + 1, 2, 1, Migrating}.String()
	gone := Placement{c.p.Epoch + 1, 1, 1, Removed}.String()
	end, op, all := c.notAfter(), string(NewOp()), c.Shard(0).taskKeys()
	kept := c.store.registry.TopicKeys(c.name)
	wake, history := c.Shard(0).taskKeys(c.Shard(0).Wake()), c.historyKeys("there")
	memory := c.Shard(0).taskKeys(c.Shard(0).memory("w"))
	number := []any{"", "x", "nan", "inf", "-inf", "-1", "1.5", "1e300"}
	positive := append([]any{"0"}, number...)
	either, parts := []any{"", "2", "x"}, []any{"", "3", "-1", "1.5", "x"}
	ops := []any{"", "short", "eight by", strings.Repeat("x", 1000)}
	whens := []any{"", "x", "nan", "+nan", "inf", "+inf", "-inf", "+-1", "1.5", "+1.5", "1e300", "281474976710656"}
	ids := []any{"", strings.Repeat("x", 256)}
	tokens := []any{"", "x", "nan", "-nan", "inf", "-inf", "0", fmt.Sprint(c.read("there").Next.UnixMilli())}
	counts := append([]any{"0", "3", "7"}, number...)
	placements := []any{
		"", "x", "0 1 1 stable", "2 0 1 stable", "2 1 4097 stable", "2 1 1", "2 1 1 moving", "-2 1 1 stable",
		"2 1 1 stable ", "9999999999999999999 1 1 stable", "2 1.5 1 stable",
	}
	terms := positive[2:] // "" is none
	reasons := []any{strings.Repeat("x", 65536)}
	return map[string]accepted{
		"put": {wake, []any{more, op, end, "", "1", "", "0", "there", "+1", "\x00new", "put", "+1", "\x00"}, map[int][]any{
			0: placements, 1: ops, 2: number, 3: {"x"}, 4: either, 5: terms, 6: number, 7: ids, 8: whens, 9: {""},
			10: ids, 11: whens, 12: {""},
		}, false},
		"reschedule": {wake, []any{more, "1", end, "", "9", op, "there", "+1", "", op, "leased", "+1", ""}, map[int][]any{
			0: placements, 1: either, 2: number, 3: terms, 4: positive, 5: ops, 7: whens, 9: ops, 11: whens,
		}, false},
		"retime": {wake, []any{more, "1", end, "", "9", op, "there", "+1", "", c.read("there").Op, "0", "0"}, map[int][]any{
			0: placements, 1: either, 2: number, 3: terms, 4: positive, 5: ops, 7: whens, 9: ops, 10: number, 11: either,
		}, false},
		"requeue": {wake, []any{more, op, end, "again", "1", "1", "5", "0", "1", "1", "", "", "0", "\x00"}, map[int][]any{
			0: placements, 1: ops, 2: number, 3: ids, 4: number, 5: number, 6: number, 7: number, 8: number, 9: either,
			10: reasons, 11: ops[1:], 12: either, 13: {""},
		}, false},
		"delete": {all, []any{more, end, "1", "", "1", "", "there"},
			map[int][]any{0: placements, 1: number, 2: either, 3: terms, 4: either, 5: ids[1:]}, true},
		"begin_term": {[]string{c.placementKey()}, []any{""}, map[int][]any{0: terms}, false},
		"raise_term": {[]string{c.Shard(0).fence()}, []any{"5", ""}, map[int][]any{0: positive, 1: terms}, false},
		"fence": {[]string{c.Shard(0).tasks(), c.Shard(0).fence(), c.Shard(0).handled()}, []any{more, "there"},
			map[int][]any{0: placements}, true},
		"export": {memory, []any{more, "1", "60000", "0", "1000", "there"}, map[int][]any{
			0: placements, 2: positive, 3: number, 4: positive,
		}, true},
		"import": {wake, []any{more, end, "imported", "1", head + "\x00", "another", "inf", head + "\x00"}, map[int][]any{
			0: placements, 1: number, 3: {"", "x", "nan", "-1", "-inf"}, 4: {""}, 6: {"x", "nan"}, 7: {""},
		}, false},
		"scan_pass": {
			[]string{c.Shard(0).fence(), c.Shard(0).handled()},
			[]any{more, "", "0", "0", "1"},
			map[int][]any{0: placements, 2: {"", "x", "-1", "1.5"}, 3: {"", "x"}, 4: either}, false,
		},
		"claim": {
			[]string{c.Shard(0).due(), c.Shard(0).tasks(), c.Shard(0).fence(), c.Shard(0).memory("v")},
			[]any{"1", "10", "60000", "1000", end, "1000", "10"},
			map[int][]any{0: {"", strings.Repeat("1", 65)}, 1: append([]any{"1001"}, number...), 2: positive, 3: positive,
				4: number, 5: number, 6: number}, false,
		},
		"stop_move": {[]string{c.Shard(0).key("mover")}, []any{"m"}, nil, false},
		"clear": {append(slices.Clone(all), c.groupKey(0)), []any{gone, "0"},
			map[int][]any{0: append([]any{more}, placements...), 1: either}, false},
		"forget": {append([]string{c.placementKey()}, kept...), []any{gone}, nil, false},
		"keep_document": {[]string{kept[0], kept[2], kept[3]}, []any{"file", "", "1", "{}"},
			map[int][]any{0: {""}, 2: either},
			false},
		"settle": {all[:3], []any{"1", held.Token, "1", held.ID, held.Token, "2", "nothing", "never"}, map[int][]any{
			0: either, 1: tokens, 2: counts, 4: tokens, 5: counts,
		}, false},
		"release": {
			[]string{c.Shard(0).due(), c.Shard(0).tasks(), c.Shard(0).Wake(), c.Shard(0).fence()},
			[]any{held.Token, held.ID, "0", "1", "1", "why", held.Token, "nothing", "park", "0", "0", ""},
			map[int][]any{0: tokens, 2: number, 3: either, 4: either, 5: reasons, 6: tokens, 8: number, 9: either, 10: either,
				11: reasons}, false,
		},
		"advance": {
			[]string{c.Shard(0).due(), c.Shard(0).tasks(), c.Shard(0).Wake(), c.Shard(0).fence()},
			[]any{held.Token, held.ID, "1", "1", held.Token, "nothing", "0", "0"},
			map[int][]any{0: tokens, 1: ids, 2: number, 3: either, 4: tokens, 6: number, 7: either}, false,
		},
		"list": {
			[]string{c.Shard(0).due(), c.Shard(0).tasks()},
			[]any{"0", "inf", "0", "", "", "10", "10", "1000", "0"},
			map[int][]any{0: {"", "x", "(0"}, 1: {"", "x", "(0"}, 2: either, 5: append([]any{"1001"}, positive...),
				6: append([]any{"1001"}, positive...), 7: positive, 8: parts}, false,
		},
		"fetch": {all[:3], []any{c.p.String(), "1000", "2", "there"}, map[int][]any{0: placements[1:], 1: positive,
			2: parts}, true},
		"replay": {
			[]string{c.Shard(0).due(), c.Shard(0).tasks(), c.Shard(0).Wake(), c.Shard(0).fence()},
			[]any{"parked"}, nil, true,
		},
		"purge": {all[:3], []any{"parked"}, nil, true},
		"check_delivery": {history, []any{"1", "1", "1", "60000"},
			map[int][]any{0: number, 1: number, 2: either, 3: positive},
			false},
		"note": {append(slices.Clone(history), history...), []any{"60000", "1", "2"}, // in one slot
			map[int][]any{0: positive, 1: number, 2: number}, false},
		"older": {history, []any{"1", "1", "1", "1"}, map[int][]any{0: number, 1: number, 2: number, 3: number}, false},
		"done":  {history, []any{"1", "60000"}, map[int][]any{0: number, 1: positive}, false},
		"allow_next": {history, []any{"1", "1", "2", "60000"}, map[int][]any{0: number, 1: number, 2: number[1:], 3: number},
			false},
		"mark_clean": {
			[]string{c.placementKey()},
			[]any{c.p.String(), "0", "1"},
			map[int][]any{1: append([]any{"1"}, number...), 2: append([]any{"4097"}, positive...)}, false,
		},
		"cas_placement": {[]string{c.placementKey(), c.changes()}, []any{c.p.String(), more, "nonce"}, map[int][]any{
			0: placements[1:], 1: placements, 2: {""},
		}, false},
		"accept_identity": {[]string{c.fleetKey("identity")}, []any{"", "new"}, map[int][]any{1: {""}}, false},
		"audit": {[]string{c.fleetKey("audit")}, []any{"twelve bytes", "0", "{}"}, map[int][]any{0: {"", "short"}, 1: either,
			2: {""}}, false},
		"describe": {[]string{c.fleetKey("fleet:notes")}, []any{"me", "{}"}, map[int][]any{0: {""}}, false},
		"heartbeat": {[]string{c.fleetKey("fleet")}, []any{"me", "1000", "60000"},
			map[int][]any{0: {""}, 1: number, 2: number}, false},
		"rate": {kept[1:2], []any{"10", "1", "1000000"}, map[int][]any{0: positive,
			1: {"", "x", "nan", "inf", "1.5"}, 2: number}, false},
		"draw": {[]string{c.ticketKey(), c.placementKey(), c.drawnKey(), c.topicKey("due")}, // in one slot
			[]any{"1", "me", "1000", "1", "0", "0"},
			map[int][]any{0: append([]any{"4097"}, positive...), 1: {""}, 2: append([]any{"3600001"}, positive...),
				3: append([]any{"0", "2"}, number...), 4: append([]any{"3600001"}, number...),
				5: append([]any{"3600001"}, number...)}, false},
	}
}

func TestACallWithAWrongArgumentChangesNothing(t *testing.T) {
	t.Parallel()
	covered := []string{"read", "stats", "events", "attention"} // they write nothing
	for name := range acceptedCalls(sandboxWithTasks(t)) {
		covered = append(covered, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sandboxWithTasks(t)
			call := acceptedCalls(c)[name]
			c.refuses(name, "without its last key", call.keys[:len(call.keys)-1], call.args)
			c.refuses(name, "with one key more", append(slices.Clone(call.keys), call.keys[0]), call.args)
			if len(call.args) > 0 && !call.open {
				c.refuses(name, "without its last argument", call.keys, call.args[:len(call.args)-1])
			}
			if !call.open {
				c.refuses(name, "with one argument more", call.keys, append(slices.Clone(call.args), "1"))
			}
			for at, values := range call.bad {
				for _, v := range values {
					args := slices.Clone(call.args)
					args[at] = v
					c.refuses(name, fmt.Sprintf("with %.60q as argument %d", v, at+1), call.keys, args)
				}
			}
			check.OK(c.t, c.eval(name, call.keys, call.args))
		})
	}
	slices.Sort(covered)
	if names := scriptNames(t); !slices.Equal(covered, names) {
		t.Errorf("tried %q, of the scripts %q", covered, names)
	}
}

func TestMoreTasksThanAScriptTakesAreRefused(t *testing.T) {
	t.Parallel()
	c := sandboxWithTasks(t)
	many := func(fixed []any, each ...any) []any {
		for range MaxBatch + 1 {
			fixed = append(fixed, each...)
		}
		return fixed
	}
	more := Placement{c.p.Epoch + 1, 2, 1, Migrating}.String()
	c.refuses("put", "of too many tasks", c.Shard(0).taskKeys(c.Shard(0).Wake()),
		many([]any{more, string(NewOp()), c.notAfter(), "", "0", "", "0"}, "a", "+1", "\x00"))
	move := []any{more, "0", c.notAfter(), "", "1"}
	c.refuses("reschedule", "of too many tasks", c.Shard(0).taskKeys(c.Shard(0).Wake()),
		many(move, string(NewOp()), "a", "+1", ""))
	c.refuses("delete", "of too many tasks", c.Shard(0).taskKeys(),
		many([]any{more, c.notAfter(), "1", "", "1", ""}, "there"))
	c.refuses("settle", "of too many tasks", c.Shard(0).taskKeys()[:3],
		many([]any{"1", "-1", MaxBatch + 1}, "there"))
	c.refuses("replay", "of too many tasks",
		[]string{c.Shard(0).due(), c.Shard(0).tasks(), c.Shard(0).Wake(), c.Shard(0).fence()},
		many(nil, "parked"))
}

// sandboxWithTasks is a corner with a task in each state.
func sandboxWithTasks(t *testing.T) *sandbox {
	t.Helper()
	c := newSandbox(t, 1)
	c.fill()
	return c
}

// fill stores a task in each state.
func (c *sandbox) fill() {
	c.t.Helper()
	c.put(task.Now(), "parked")
	c.park("parked", "why")
	c.put(task.In(time.Hour), "there")
	c.put(task.Now(), "leased")
}

func (c *sandbox) eval(name string, keys []string, args []any) error {
	text, err := Script(name)
	check.OK(c.t, err)
	return c.rdb.Eval(c.t.Context(), text, keys, args...).Err()
}

// refuses ends the test unless a call is an error that leaves every key as it was.
func (c *sandbox) refuses(name, how string, keys []string, args []any) {
	c.t.Helper()
	before := c.everything()
	err := c.eval(name, keys, args)
	if err == nil || !strings.HasPrefix(err.Error(), "ARGUMENT ") {
		c.t.Errorf("%s %s: got %v", name, how, err)
	}
	if after := c.everything(); !maps.Equal(before, after) {
		c.t.Fatalf("%s %s changed what is stored", name, how)
	}
}

// everything is each key of the corner and what it holds.
func (c *sandbox) everything() map[string]string {
	c.t.Helper()
	var one sync.Mutex
	held := map[string]string{}
	of := func(ctx context.Context, node *redis.Client) error {
		one.Lock()
		defer one.Unlock()
		keys, err := node.Keys(ctx, c.store.prefix+":*").Result()
		for _, key := range keys {
			if err == nil {
				held[key], err = node.Dump(ctx, key).Result()
			}
		}
		return err
	}
	switch rdb := c.rdb.(type) {
	case *redis.ClusterClient:
		check.OK(c.t, rdb.ForEachMaster(c.t.Context(), of))
	case *redis.Client:
		check.OK(c.t, of(c.t.Context(), rdb))
	default:
		c.t.Fatalf("a client of a kind that no corner has: %T", rdb)
	}
	return held
}
