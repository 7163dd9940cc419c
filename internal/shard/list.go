package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
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
	// bounded: the first call finds out the last task, end.
	bounded bool
	end     string
	part    part
	// messages: records are read as with partMeta. See ReadMessages.
	messages bool
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

// ReadMessages makes the list set Task.AMQP, Task.Recurrence and Task.Series, where they can
// be read. It comes before the first Next.
func (l *List) ReadMessages() { l.messages = true }

func scoreText(score float64) string { return strconv.FormatFloat(score, 'g', -1, 64) }

// Next returns more tasks, each with the part of the record that l.part selects. No tasks
// means the end. A task whose record can't be read has an Err. A task that is exported to
// a mover has its state from before.
func (l *List) Next(ctx context.Context) ([]Stored, error) {
	if l.bounded && !l.begun {
		end, there, err := l.shard.lastParked(ctx)
		if err != nil {
			return nil, err
		}
		l.end, l.over = end, !there
	}
	for !l.over {
		tasks, err := l.page(ctx)
		if err != nil || len(tasks) > 0 {
			return tasks, err
		}
	}
	return nil, nil
}

func (l *List) page(ctx context.Context) ([]Stored, error) {
	s, part := l.shard, l.part
	if l.messages {
		part = max(part, partMeta)
	}
	args := []any{
		l.from, l.to, l.begun, l.last, l.prefix,
		listLooked, min(l.tasks, listTasks), listBytes, int(part),
	}
	call := luascript.Call{Script: "list", Keys: []string{s.due(), s.tasks()}, Args: args}
	reply := s.topic.store.scripts.Run(ctx, call).Values()
	more, from, last, now := reply.Int(), reply.Text(), reply.Text(), reply.Int()
	var tasks []Stored
	for reply.Left() > 0 {
		one := listed{id: reply.Text(), score: reply.Text()}
		one.record, one.there = reply.TextIf()
		one.left = int(reply.Int())
		stored := s.topic.listed(l.part, now, one)
		if l.messages && l.part == partHead && one.there {
			if r, err := DecodeRecord(s.topic.name, one.id, one.record); err == nil {
				stored.AMQP, stored.Recurrence, stored.Series = r.AMQP, r.Recurrence, r.Series
			}
		}
		tasks = append(tasks, stored)
	}
	if err := reply.Err(); err != nil {
		return nil, fmt.Errorf("list tasks of shard %d of topic %s: %w", s.n, s.topic.name, err)
	}
	l.over, l.begun, l.from, l.last = more != 1, true, from, last
	if past := slices.IndexFunc(tasks, func(t Stored) bool { return t.ID > l.end }); l.bounded && past >= 0 {
		l.over, tasks = true, tasks[:past]
	}
	return tasks, nil
}

// listed is the reply of a script about one task.
type listed struct {
	id     string
	score  string // "" for none
	record string // a part of it
	there  bool   // it has a record
	left   int    // bytes of the payload that record lacks
}

// listed decodes the reply of a script about one task. now is the time of the reply in
// ms. If the task is leased and not due yet, a mover has it, so listed returns it as
// waiting.
func (t *Topic) listed(p part, now int64, l listed) Stored {
	stored := Stored{Record: Record{Task: task.Task{Topic: t.name, ID: l.id}}}
	err := errors.New("it has no record")
	switch {
	case l.there && p == partWhole:
		stored.Record, err = DecodeRecord(t.name, l.id, l.record)
	case l.there && p == partMeta:
		stored.Record, err = decodeWithoutPayload(t.name, l.id, l.record, l.left)
	case l.there:
		stored.Record, err = DecodeHead(t.name, l.id, l.record)
	}
	if err != nil {
		stored.Err, stored.Reason = err, err.Error()
	}
	at, _ := strconv.ParseFloat(l.score, 64) // Redis wrote it
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
