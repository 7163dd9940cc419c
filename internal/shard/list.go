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

// What one page of a listing costs Redis is bounded by these: less than a millisecond, in a
// shard of a million tasks that are due at one time, too.
const (
	listLooked = 500       // IDs, of which a prefix may leave none
	listTasks  = 150       // whose records are read
	listBytes  = 512 << 10 // of these records
)

// Span is a range of scores, both included: all tasks of one state, or some of them.
type Span struct{ From, To float64 }

// SpanOf is every task that is in a state.
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

// Within leaves of a span those that need attention from one time to another, both
// included; a zero time is no limit. It is for tasks that wait.
func (s Span) Within(from, to time.Time) Span {
	if !from.IsZero() {
		s.From = max(s.From, float64(from.UnixMilli()))
	}
	if !to.IsZero() {
		s.To = min(s.To, float64(to.UnixMilli()))
	}
	return s
}

// List walks through tasks of a shard in the order of their scores, those of one score
// in the order of their IDs' bytes. It holds one page in memory. A task that keeps its
// score is met once; one whose score changes meanwhile perhaps twice, or never.
type List struct {
	shard  Shard
	prefix string
	to     string
	from   string // the score of the task looked at last
	last   string // its ID
	begun  bool
	over   bool
	tasks  int64 // of a page at most
	part   part
}

// part is how much of each record is read.
type part int

const (
	partHead  part = iota // without content types, headers and payloads
	partMeta              // without payloads
	partWhole             // all of it
)

// List returns a walk in front of the tasks of a span whose IDs begin with prefix.
func (s Shard) List(span Span, prefix string) *List {
	return &List{shard: s, prefix: prefix, from: scoreText(span.From), to: scoreText(span.To), tasks: listTasks}
}

func scoreText(score float64) string { return strconv.FormatFloat(score, 'g', -1, 64) }

// Next returns more tasks, with the part of each record that was set; none: it is over. One
// whose record can't be read has an Err. A task that was lent to a mover stands as it did
// before.
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

// listed reads what a script says at a ms of one task: its score, and a part of its record,
// of which so many bytes were left out. What is leased and not due yet a mover has.
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

// attention is when a task of that score is to be tried, or its lease ends; zero if it
// is parked.
func attention(score float64) time.Time {
	if stateOf(score) == task.Parked {
		return time.Time{}
	}
	return time.UnixMilli(int64(math.Abs(score))).UTC()
}
