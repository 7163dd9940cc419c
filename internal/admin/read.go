package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Reader reads the status of a fleet.
type Reader struct {
	Store *shard.Store
	// OrphansEvery is how often it counts a topic's orphaned tasks: at most once in this
	// time, and with 0 at each reading. The count looks at all MaxShards shards.
	OrphansEvery time.Duration
	// OrphansIn spreads the counts of all topics over as many readings. A topic whose turn has
	// not come keeps its last count, or none. 0 counts at once, and counts none of more than
	// orphansMost topics.
	OrphansIn int

	orphans map[string]orphans
	turns   int // topics that this reading may still count
}

const (
	// orphansMost is how many topics may be asked for orphaned tasks at once. Each takes Redis
	// a ms.
	orphansMost = 100
	// countedAtOnce is how many topics' shards are counted in one round trip.
	countedAtOnce = 64
	// askedAtOnce is how many topics are asked at the same time for the progress of a change.
	askedAtOnce = 8
)

// orphans is a count of a topic's orphaned tasks.
type orphans struct {
	at        time.Time
	placement shard.Placement
	tasks     int64
}

// ReadStatus reads the status of one topic, or of all known topics if topic is "".
func ReadStatus(ctx context.Context, store *shard.Store, topic string) (Status, error) {
	return (&Reader{Store: store}).Read(ctx, topic)
}

// Read reads the status of one topic, or of all known topics if topic is "". One goroutine
// at a time may call it.
func (r *Reader) Read(ctx context.Context, topic string) (Status, error) {
	var s Status
	var err error
	if s.Fleet, err = balance.Members(ctx, r.Store); err != nil {
		return s, err
	}
	known, err := r.Store.Registry().Topics(ctx)
	if err != nil {
		return s, err
	}
	names := known
	if topic != "" {
		names = []string{topic}
	}
	r.turns = len(names)
	switch {
	case r.OrphansIn > 0:
		r.turns = (len(names) + r.OrphansIn - 1) / r.OrphansIn
	case len(names) > orphansMost:
		r.turns = 0
	}
	s.Topics = make([]TopicStatus, 0, len(names))
	readings, err := r.readTopics(ctx, names, known)
	if err != nil {
		return s, err
	}
	for _, d := range readings {
		err := r.finish(ctx, d)
		if errors.Is(err, task.ErrUnknownTopic) && topic == "" {
			continue // removed between the two reads
		}
		if own(err) && topic == "" { // the others can be read
			d.out = TopicStatus{Topic: d.topic.Name(), PerShard: []shard.Stats{}}
			d.out.addProblem(problem.TopicUnreadable, err.Error())
			err = nil
		}
		if err != nil {
			return s, err
		}
		d.out.addReports(s.Fleet)
		s.Topics = append(s.Topics, d.out)
	}
	maps.DeleteFunc(r.orphans, func(name string, _ orphans) bool { return !slices.Contains(known, name) })
	if len(balance.Live(s.Fleet)) == 0 { // perhaps because no scanner can write
		if s.replicas, err = r.Store.Registry().Replicas(ctx); err != nil && !shard.Definite(err) {
			return s, err
		}
	}
	s.judge(time.Now(), topic)
	for i := range s.Fleet { // they are in the topics and in the problems
		s.Fleet[i].Topics, s.Fleet[i].Problems = nil, nil
	}
	return s, nil
}

// own reports whether an error of a topic says nothing about the other topics.
func own(err error) bool { return shard.Definite(err) && !shard.Denied(err) }

// reading is a topic whose status is being read.
type reading struct {
	topic     *shard.Topic
	placement shard.Placement
	// cut: it is removed, but still in the list of topics. A removal ends by taking it off, so
	// it was interrupted.
	cut   bool
	count shard.Count
	out   TopicStatus
	err   error // why the topic can't be read
}

// readTopics reads the placements of all topics together, then their counts, sources and fences.
// Last it reads the changes of several topics at the same time. An error that concerns one topic is
// in its reading; any other ends it.
func (r *Reader) readTopics(ctx context.Context, names, known []string) ([]*reading, error) {
	topics := make([]*shard.Topic, len(names))
	for i, name := range names {
		topics[i] = r.Store.Topic(name)
	}
	listed := make(map[string]bool, len(known))
	for _, name := range known {
		listed[name] = true
	}
	all, counts := make([]*reading, len(names)), make([]shard.Count, len(names))
	for i, p := range r.Store.Placements(ctx, topics) {
		d := &reading{topic: topics[i], placement: p.Placement, err: p.Err}
		counts[i].Topic = d.topic
		if d.cut = listed[names[i]] && p.Phase == shard.Removed; d.cut {
			d.err, counts[i].Shards = nil, max(p.Shards, p.Previous)
		} else if p.Err == nil {
			counts[i].Shards = p.Scanned()
		}
		if d.err != nil && !own(d.err) && !errors.Is(d.err, task.ErrUnknownTopic) {
			return nil, d.err
		}
		all[i] = d
	}
	for some := range slices.Chunk(counts, countedAtOnce) {
		for _, c := range r.Store.Stats(ctx, some) {
			if c.Err != nil && shard.Unreadable(c.Err) == nil {
				return nil, c.Err
			}
		}
	}
	for i, d := range all {
		d.count = counts[i]
	}
	if err := r.readTogether(ctx, all); err != nil {
		return nil, err
	}
	return all, readChanges(ctx, all)
}

// readTogether reads the sources and the fences of all topics in pipelines. It returns an error
// that concerns more than one topic.
func (r *Reader) readTogether(ctx context.Context, all []*reading) error {
	var read []*reading
	var names []string
	var placed []shard.Placed
	for _, d := range all {
		if d.err != nil {
			continue
		}
		p := d.placement
		d.out = TopicStatus{Topic: d.topic.Name(), Shards: p.Shards, Epoch: p.Epoch, Phase: p.Phase, Polled: p.Scanned()}
		if !d.cut {
			read, names = append(read, d), append(names, d.topic.Name())
			placed = append(placed, shard.Placed{Topic: d.topic, Placement: p})
		}
	}
	sources := r.Store.Registry().Sources(ctx, names)
	for i, err := range r.Store.Forked(ctx, placed) {
		out, source := &read[i].out, sources[names[i]]
		if source.Err != nil && !shard.Definite(source.Err) {
			return source.Err
		}
		if out.Source = source.Source; errors.Is(err, task.ErrForked) {
			out.addProblem(problem.PlacementForked, err.Error())
			continue
		}
		if err = out.leaveOut(err); err != nil && !own(err) {
			return err
		}
		read[i].err = err
	}
	return nil
}

// readChanges reads the progress of the topics whose shard count changes, several at the same
// time. It returns an error that concerns more than one topic.
func readChanges(ctx context.Context, all []*reading) error {
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(askedAtOnce)
	for _, d := range all {
		if d.err != nil || d.cut || d.placement.Phase != shard.Migrating {
			continue
		}
		group.Go(func() error {
			var err error
			d.out.Previous = d.placement.Previous
			d.out.Change, err = readChange(asking, d.topic, d.placement)
			if d.err = d.out.leaveOut(err); !own(d.err) {
				return d.err // the others would fail too
			}
			return nil
		})
	}
	return group.Wait()
}

// finish adds the orphaned tasks and the counts to the topic's status.
func (r *Reader) finish(ctx context.Context, d *reading) error {
	if d.err != nil {
		return d.err
	}
	if d.cut {
		return d.out.count(d.count.Stats, d.count.Err)
	}
	var err error
	d.out.Orphans, err = r.countOrphans(ctx, d.topic, d.placement)
	if err = d.out.leaveOut(err); err != nil {
		return err
	}
	if d.out.Orphans > 0 {
		d.out.addProblem(problem.TasksOrphaned, fmt.Sprintf("%d tasks lie in shards that no scanner polls; scanners find "+
			"them within minutes and recover them", d.out.Orphans), "tasks", d.out.Orphans)
	}
	return d.out.count(d.count.Stats, d.count.Err)
}

// countOrphans counts the orphaned tasks of a topic, or returns the last count.
func (r *Reader) countOrphans(ctx context.Context, t *shard.Topic, p shard.Placement) (int64, error) {
	last, there := r.orphans[t.Name()]
	if r.turns == 0 || there && last.placement == p && time.Since(last.at) < r.OrphansEvery {
		return last.tasks, nil
	}
	r.turns--
	counted, err := t.Orphans(ctx, p)
	if err != nil {
		return counted.Tasks, err
	}
	if r.orphans == nil {
		r.orphans = map[string]orphans{}
	}
	r.orphans[t.Name()] = orphans{time.Now(), p, counted.Tasks}
	return counted.Tasks, nil
}

// readChange returns the progress of a change, without the shards that an
// *shard.UnreadableError names.
func readChange(ctx context.Context, t *shard.Topic, p shard.Placement) (*Change, error) {
	progress, unread := t.Progress(ctx, p)
	if unread != nil && shard.Unreadable(unread) == nil {
		return nil, unread
	}
	ms, err := t.Now(ctx)
	if err != nil {
		return nil, err
	}
	now := time.UnixMilli(ms).UTC()
	c := &Change{
		Since: progress.Since.UTC(), Clean: progress.Clean, Moved: progress.Moved,
		Misplaced: progress.Misplaced, Rate: progress.Rate(now),
	}
	if left := progress.Left(now); left > 0 {
		c.End = now.Add(left)
	}
	return c, unread
}
