package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/task"
)

// The limits of one page of a list. A page takes less than a millisecond of Redis, even
// in a shard with a million tasks that are due at the same time.
const (
	listLooked = 500       // IDs to compare with the prefix
	listTasks  = 150       // records to read
	listBytes  = 512 << 10 // bytes of these records
)

// Span is a range of scores, both included: all tasks of one state, or some of them.
type Span struct{ From, To float64 }

// SpanOf returns the scores of all tasks in a state.
func SpanOf(s task.State) Span {
	switch s {
	case task.Leased:
		return Span{math.Inf(-1), -1}
	case task.Parked:
		return Span{math.Inf(1), math.Inf(1)}
	default:
		return Span{0, math.MaxFloat64}
	}
}

// Within returns the part of the span with scores from one time to another, both
// included. A zero time means no limit. It is for the span of waiting tasks.
func (s Span) Within(from, to time.Time) Span {
	if !from.IsZero() {
		s.From = max(s.From, float64(from.UnixMilli()))
	}
	if !to.IsZero() {
		s.To = min(s.To, float64(to.UnixMilli()))
	}
	return s
}

// List pages through tasks of a shard by score, then by the bytes of their IDs. It keeps
// one page in memory. It returns a task once if its score doesn't change meanwhile;
// otherwise it may return it twice, or never.
type List struct {
	shard  Shard
	prefix string
	to     string
	from   string // score of the last task that was read
	last   string // its ID
	begun  bool
	over   bool
	tasks  int64 // limit of a page
	part   part
}

// part is the part of a record that is read.
type part int

const (
	partHead  part = iota // without content types, headers and payloads
	partMeta              // without payloads
	partWhole             // the whole record
)

// List returns a List of the tasks in span whose IDs begin with prefix.
func (s Shard) List(span Span, prefix string) *List {
	return &List{shard: s, prefix: prefix, from: scoreText(span.From), to: scoreText(span.To), tasks: listTasks}
}

func scoreText(score float64) string { return strconv.FormatFloat(score, 'g', -1, 64) }

// Next returns more tasks, each with the part of the record that l.part selects. No tasks
// means the end. A task whose record can't be read has an Err. A task that is exported to
// a mover has its state from before.
func (l *List) Next(ctx context.Context) ([]Stored, error) {
	for !l.over {
		tasks, err := l.page(ctx)
		if err != nil || len(tasks) > 0 {
			return tasks, err
		}
	}
	return nil, nil
}

func (l *List) page(ctx context.Context) ([]Stored, error) {
	s := l.shard
	args := []any{
		l.from, l.to, oneIf(l.begun), l.last, l.prefix,
		listLooked, min(l.tasks, listTasks), listBytes, int(l.part),
	}
	reply, err := s.topic.run(ctx, call{script: "list", keys: []string{s.due(), s.tasks()}, args: args}).Slice()
	if err == nil && len(reply) < 4 {
		err = errors.New("short answer")
	}
	if err != nil {
		return nil, fmt.Errorf("list tasks of shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	l.over, l.begun = reply[0] != int64(1), true
	l.from, _ = reply[1].(string)
	l.last, _ = reply[2].(string)
	var tasks []Stored
	now, _ := reply[3].(int64)
	for r := reply[4:]; len(r) >= 4; r = r[4:] {
		left, _ := r[3].(int64)
		id, _ := r[0].(string)
		tasks = append(tasks, s.topic.listed(l.part, now, id, r[1], r[2], int(left)))
	}
	return tasks, nil
}

// listed decodes the reply of a script about one task. now is the time of the reply in
// ms. record is a part of the task's record, without left bytes of the payload. If the
// task is leased and not due yet, a mover has it, so listed returns it as waiting.
func (t *Topic) listed(p part, now int64, id string, score, record any, left int) Stored {
	text, there := record.(string)
	stored := Stored{Record: Record{Task: task.Task{Topic: t.name, ID: id}}}
	err := errors.New("it has no record")
	switch {
	case there && p == partWhole:
		stored.Record, err = DecodeRecord(t.name, id, text)
	case there && p == partMeta:
		stored.Record, err = decodeWithoutPayload(t.name, id, text, left)
	case there:
		stored.Record, err = DecodeHead(t.name, id, text)
	}
	if err != nil {
		stored.Err, stored.Reason = err, err.Error()
	}
	at, _ := strconv.ParseFloat(fmt.Sprint(score), 64) // Redis wrote it
	if due := stored.Due.UnixMilli(); stored.exported {
		at = stored.prior
	} else if at < 0 && stored.Err == nil && due > now {
		at = float64(due)
	}
	stored.State, stored.Next = stateOf(at), attention(at)
	return stored
}

// attention returns when a task with this score is tried next, or when its lease ends. It
// returns zero for a parked task.
func attention(score float64) time.Time {
	if stateOf(score) == task.Parked {
		return time.Time{}
	}
	return time.UnixMilli(int64(math.Abs(score))).UTC()
}
