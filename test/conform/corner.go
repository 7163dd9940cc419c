package conform

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// sandbox is one transcript's sandbox: a topic in Redis. In it the kit acts as scanner,
// mover, operator and other producers.
type sandbox struct {
	prefix, topic string
	keys          *keySet
}

// keySet is the set of keys to delete in the end.
type keySet struct {
	mu  sync.Mutex
	all map[string]bool
}

func (c sandbox) placement() string { return c.prefix + ":placement:{" + c.topic + "}" }

func (c sandbox) key(kind string, n int) string {
	return c.prefix + ":" + kind + ":{" + c.topic + ":" + strconv.Itoa(n) + "}"
}

// touch records keys that may have been written.
func (c sandbox) touch(keys ...string) {
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	for _, k := range keys {
		c.keys.all[k] = true
	}
}

// stepError is an error for a step that is impossible because of what the program did or
// didn't do.
type stepError string

func (e stepError) Error() string { return string(e) }

func missed(format string, args ...any) error { return stepError(fmt.Sprintf(format, args...)) }

// fixture is a sandbox with the means to change it.
type fixture struct {
	sandbox
	rdb    redis.UniversalClient
	orders *shard.Topic
	client *producer.Client

	shards  int // the largest shard count of the topic so far
	leased  map[string]shard.Lease
	where   map[string]int // the shards of the leased tasks
	exports map[string]shard.Exported
}

// claimant is the kit's claimant name for claims and exports.
const claimant = "conform"

func newFixture(rdb redis.UniversalClient, at sandbox) (*fixture, error) {
	store, err := shard.New(rdb, at.prefix)
	if err != nil {
		return nil, err
	}
	client, err := producer.New(producer.Config{Redis: rdb, Prefix: at.prefix})
	if err != nil {
		return nil, err
	}
	return &fixture{
		sandbox: at, rdb: rdb, orders: store.Topic(at.topic), client: client,
		leased: map[string]shard.Lease{}, where: map[string]int{}, exports: map[string]shard.Exported{},
	}, nil
}

// do executes one step that isn't a request.
func (w *fixture) do(ctx context.Context, s Step) error {
	switch {
	case s.Shards > 0:
		w.grow(s.Shards)
		_, err := w.orders.Ensure(ctx, s.Shards)
		return err
	case s.Store != nil:
		_, err := w.client.Schedule(ctx, producer.Request{
			Topic: w.topic, ID: s.Store.ID, When: producer.At(time.UnixMilli(s.Store.At)),
			Payload: []byte(s.Store.Payload), ContentType: s.Store.ContentType, Headers: s.Store.Headers,
		})
		return err
	case s.Lease != "":
		return w.lease(ctx, s.Lease)
	case s.Return != nil:
		return w.giveBack(ctx, *s.Return)
	case s.Begin > 0:
		return w.begin(ctx, s.Begin, true)
	case s.BeginUnseen > 0:
		return w.begin(ctx, s.BeginUnseen, false)
	case s.Raw != nil:
		return w.raw(ctx, s.Raw)
	case s.Remove:
		p, err := w.orders.Placement(ctx)
		if err == nil {
			_, err = w.orders.Remove(ctx, p)
		}
		return err
	}
	return w.move(ctx, s)
}

// move executes the steps of movers.
func (w *fixture) move(ctx context.Context, s Step) error {
	switch {
	case s.Export != "":
		return w.export(ctx, s.Export)
	case s.Import != "":
		return w.importBatch(ctx, s.Import)
	case s.Move != "":
		if err := w.export(ctx, s.Move); err != nil {
			return err
		}
		return w.importBatch(ctx, s.Move)
	case s.Finish:
		return w.finish(ctx)
	}
	return errors.New("a step that does nothing")
}

// grow records the number of shards, so that all of them are compared in the end.
func (w *fixture) grow(shards int) {
	w.shards = max(w.shards, shards)
	for n := range w.shards {
		for _, kind := range []string{"due", "task", "fence", "handled", "mover"} {
			w.touch(w.key(kind, n))
		}
		w.touch(w.key("claim", n) + ":" + claimant)
	}
}

// raw executes a command. In it "due 3" stands for that key of shard 3, and "placement"
// for the topic's placement.
func (w *fixture) raw(ctx context.Context, words []string) error {
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	kind, number, ofShard := strings.Cut(words[1], " ")
	n, err := strconv.Atoi(number)
	switch {
	case ofShard && err == nil:
		args[1] = w.key(kind, n)
	case kind == "placement":
		args[1] = w.placement()
	default:
		return fmt.Errorf("raw: %q is not a key", words[1])
	}
	return w.rdb.Do(ctx, args...).Err()
}

func (w *fixture) begin(ctx context.Context, shards int, seen bool) error {
	w.grow(shards)
	from, err := w.orders.Placement(ctx)
	if err != nil {
		return err
	}
	done, err := w.orders.Begin(ctx, from, shards)
	if err != nil {
		return err
	}
	if !done {
		return missed("begin a change to %d shards under %q: not possible", shards, from)
	}
	p, err := w.orders.Placement(ctx)
	for s := 0; err == nil && seen && s < p.Scanned(); s++ {
		_, err = w.orders.Shard(s).Fence(ctx, p)
	}
	return err
}

// lease claims all due tasks.
func (w *fixture) lease(ctx context.Context, id string) error {
	for s := range w.shards {
		batch, err := w.orders.Shard(s).Claim(ctx, shard.Claim{
			Claimant: claimant, Request: strconv.FormatInt(time.Now().UnixNano(), 10), Limit: shard.MaxBatch, Lease: time.Hour,
		})
		if err != nil {
			return err
		}
		for _, t := range batch.Tasks {
			w.leased[t.ID], w.where[t.ID] = shard.Lease{ID: t.ID, Token: t.Token}, s
		}
	}
	if _, ok := w.leased[id]; !ok {
		return missed("lease %q: it was not due", id)
	}
	return nil
}

func (w *fixture) giveBack(ctx context.Context, r Return) error {
	n, err := w.orders.Shard(w.where[r.ID]).Release(ctx, []shard.Release{{
		Lease: w.leased[r.ID], Park: r.Park, Delay: time.Hour, Attempted: true, Reason: r.Reason,
	}})
	if err == nil && n != 1 {
		err = missed("return %q: it was not leased", r.ID)
	}
	return err
}

func (w *fixture) export(ctx context.Context, id string) error {
	p, err := w.orders.Placement(ctx)
	if err != nil {
		return err
	}
	w.exports[id], err = w.orders.Shard(p.Old(id)).Export(ctx, p, shard.Export{
		Claimant: claimant, Request: strconv.FormatInt(time.Now().UnixNano(), 10), Lease: time.Hour, IDs: []string{id},
	})
	if err == nil && len(w.exports[id].Tasks) != 1 {
		err = missed("export %q: it is not at its old shard", id)
	}
	return err
}

func (w *fixture) importBatch(ctx context.Context, id string) error {
	p, err := w.orders.Placement(ctx)
	if err != nil {
		return err
	}
	export := w.exports[id]
	if err := w.orders.Import(ctx, p, export.Deadline, shard.Share{Shard: p.New(id),
		Tasks: export.Tasks})[0].Err; err != nil {
		return err
	}
	_, err = w.orders.Shard(p.Old(id)).RemoveExported(ctx, []shard.Lease{{ID: id, Token: export.Token}})
	return err
}

func (w *fixture) finish(ctx context.Context) error {
	p, err := w.orders.Placement(ctx)
	if err != nil {
		return err
	}
	for s := range p.Scanned() {
		ids, err := w.rdb.ZRange(ctx, w.key("due", s), 0, -1).Result()
		if err != nil {
			return err
		}
		for _, id := range ids {
			if p.New(id) == s {
				continue
			}
			if err := w.move(ctx, Step{Move: id}); err != nil {
				return err
			}
		}
	}
	done, err := w.orders.Finish(ctx, p)
	if err == nil && !done {
		err = missed("end the change %q: not possible", p)
	}
	return err
}

// state reads the contents of the shards. A score without a record, or a record without a
// score, is a problem.
func (w *fixture) state(ctx context.Context) (s State, problems []string, err error) {
	s.Handled = map[string][]string{}
	for n := range w.shards {
		scores, err := w.rdb.ZRangeWithScores(ctx, w.key("due", n), 0, -1).Result()
		if err != nil {
			return s, nil, err
		}
		records, err := w.rdb.HGetAll(ctx, w.key("task", n)).Result()
		if err != nil {
			return s, nil, err
		}
		for _, z := range scores {
			id, _ := z.Member.(string)
			text, there := records[id]
			if !there {
				problems = append(problems, fmt.Sprintf("shard %d has a score for %q and no record", n, id))
			}
			delete(records, id)
			s.Tasks = append(s.Tasks, w.task(n, id, z.Score, text))
		}
		for _, id := range slices.Sorted(maps.Keys(records)) {
			problems = append(problems, fmt.Sprintf("shard %d has a record for %q and no score", n, id))
		}
		handled, err := w.rdb.SMembers(ctx, w.key("handled", n)).Result()
		if err != nil {
			return s, nil, err
		}
		if len(handled) > 0 {
			s.Handled[strconv.Itoa(n)] = slices.Sorted(slices.Values(handled))
		}
	}
	return s, problems, nil
}

// task returns a record in the form of transcripts.
func (w *fixture) task(n int, id string, score float64, text string) Task {
	r, err := shard.DecodeRecord(w.topic, id, text)
	t := Task{Shard: n, ID: id, State: stateOf(score)}
	if err != nil {
		t.Unreadable = true
		return t
	}
	t.Due, t.Payload, t.Headers, t.Attempts = r.Due.UnixMilli(), string(r.Payload), r.Headers, r.Attempt-1
	if t.State == "waiting" && t.Attempts == 0 && score != float64(r.Due.UnixMilli()) {
		t.State = fmt.Sprintf("waiting until %.0f, not until it is due", score)
	}
	if r.ContentType != task.DefaultContentType {
		t.ContentType = r.ContentType
	}
	return t
}

func stateOf(score float64) string {
	switch {
	case score < 0:
		return "leased"
	case score > 1e15:
		return "parked"
	}
	return "waiting"
}

// payload returns the task's payload as text, decoded if it is base64.
func (t *Task) payload() string {
	if !t.Base64 {
		return t.Payload
	}
	b, _ := base64.StdEncoding.DecodeString(t.Payload) // written in a transcript; a wrong one equals no payload
	return string(b)
}

// clear deletes everything that was written.
func (w *fixture) clear(ctx context.Context, ids []string) error {
	w.touch(w.placement(), w.prefix+":topics")
	for _, kind := range []string{"ticket", "rate", "document"} {
		w.touch(w.prefix + ":" + kind + ":{" + w.topic + "}")
	}
	for _, id := range ids {
		w.touch(w.prefix + ":past:{" + w.topic + ":" + id + "}")
	}
	w.keys.mu.Lock()
	defer w.keys.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(w.keys.all)) {
		if err := w.rdb.Unlink(ctx, key).Err(); err != nil {
			return fmt.Errorf("remove %s: %w", key, err)
		}
	}
	return nil
}
