package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// verb is the kind of a producer's call.
type verb string

const (
	schedule   verb = "schedule"
	ifAbsent   verb = "schedule if absent"
	ifPresent  verb = "schedule if present"
	reschedule verb = "reschedule"
	cancel     verb = "cancel"
	get        verb = "get"
	// cancelGroup removes the tasks of a group, whatever their IDs are.
	cancelGroup verb = "cancel the group"
)

// operation is one call of a producer. A call that writes a task writes a version of it,
// and the operation stands for that version. Only get doesn't write.
type operation struct {
	verb    verb
	id      string
	name    string // and payload, of a scheduled task
	number  string // the op in its record
	amqp    bool   // it schedules a message of AMQP, which takes another record format.
	recurs  bool   // it schedules or moves a recurring task
	group   string // of the task, or of those that are cancelled; "": none
	when    request
	began   int // step
	ended   int // 0: it is running
	crashed bool
	// repeated: a reply was lost, so the answer may be about an earlier execution of the
	// same call.
	repeated bool
	err      error
	due      int64    // as returned to the caller
	got      taskView // the result of get

	// These fields describe the states seen in Redis while the operation ran.
	seen   map[taskView]bool
	gone   bool // there was a moment when the task was not stored
	others bool // there was a moment when a version of another operation was stored

	// These fields tell what has happened to the version.
	written   bool
	payload   string
	delivered int
	excused   bool // another delivery is allowed: a lease expired, or a confirm was lost
	mayPark   bool
	parked    bool
	runs      runs // of a recurring task
}

// runs has what happened to the runs of one version of a recurring task, by the ms when they
// were due by the rule. A run that the broker refused for good is a task of its own in the
// product. The machine stores none.
type runs struct {
	first     int64 // the earliest that was stored
	delivered map[int64]int
	refused   map[int64]bool
	excused   map[int64]bool // another delivery is allowed
}

// between is the time between two runs, and each recurring task has three.
const (
	between  = time.Hour
	runsEach = 3
)

// plannedOf returns when the run of a recurring task is due by its rule, in ms.
func plannedOf(r *shard.Record) int64 { return r.Recurrence.PlannedAt(r.Due).UnixMilli() }

// see notes a stored run.
func (s *runs) see(planned int64, lapsed bool) {
	if s.delivered == nil {
		*s = runs{planned, map[int64]int{}, map[int64]bool{}, map[int64]bool{}}
	}
	s.first = min(s.first, planned)
	s.excused[planned] = s.excused[planned] || lapsed
}

// gap returns a run before this one that was neither delivered nor refused; 0: there is none.
func (s *runs) gap(planned int64) int64 {
	for at := s.first; at < planned; at += between.Milliseconds() {
		if s.delivered[at] == 0 && !s.refused[at] {
			return at
		}
	}
	return 0
}

// taskView is a producer's view of a task.
type taskView struct {
	payload string
	due     int64
	state   task.State
}

// request is a requested due time.
type request struct {
	relative bool
	millis   int64
	from     int64 // Redis's clock at the request
}

// early returns the earliest due time that the call may return.
func (r request) early() int64 { return r.at(r.from) }

// at returns the due time if the script runs at now.
func (r request) at(now int64) int64 {
	if r.relative {
		return now + max(r.millis, 0)
	}
	return max(r.millis, now)
}

func (o *operation) String() string {
	return fmt.Sprintf("%s (%s %s)", o.name, o.verb, o.id)
}

// writes reports whether the operation writes a version of the task.
func (o *operation) writes() bool { return o.verb != cancel && o.verb != get && o.verb != cancelGroup }

// scheduled reports whether the operation brings a task of its own.
func (o *operation) scheduled() bool {
	return o.verb == schedule || o.verb == ifAbsent || o.verb == ifPresent
}

// surely reports whether the operation returned and certainly took effect.
func (o *operation) surely() bool { return o.ended > 0 && !o.crashed && o.err == nil && o.verb != get }

// perhaps reports whether the operation may have taken effect, but not certainly.
func (o *operation) perhaps() bool {
	return !o.surely() && o.verb != get && (o.ended == 0 || o.crashed || o.repeated)
}

// concerns reports whether an operation on the task's ID, or on a group, is about a version.
func (o *operation) concerns(x *operation) bool { return o.verb != cancelGroup || o.group == x.group }

// follows reports whether the operation certainly replaced or removed the result of x: it
// began after x ended, and it returned.
func (o *operation) follows(x *operation) bool {
	over := o.surely() || o.verb == cancel && o.ended > 0 && !o.crashed
	return over && x.ended > 0 && o.began > x.ended
}

// model holds the promises made to producers.
type model struct {
	operations []*operation
	live       map[string]int // by ID: the last step at which the task was stored
}

// of returns the operations on a task. Any task may be in a group that is cancelled.
func (m *model) of(id string) (ops []*operation) {
	for _, o := range m.operations {
		if o.id == id || o.verb == cancelGroup {
			ops = append(ops, o)
		}
	}
	return ops
}

// version returns the operation that wrote a record.
func (m *model) version(number string) *operation {
	for _, o := range m.operations {
		if o.writes() && o.number == number {
			return o
		}
	}
	return nil
}

// superseded returns the operation that replaced or removed a version before a given
// step, or nil. A claim that begins at that step must not deliver the version.
func (m *model) superseded(x *operation, step int) *operation {
	for _, y := range m.of(x.id) {
		if y.follows(x) && y.ended < step && y.concerns(x) {
			return y
		}
	}
	return nil
}

// deliver records that a message was published for a claimed version.
func (m *model) deliver(x *operation, r *shard.Record) error {
	if r.Recurrence != nil {
		return m.deliverRun(x, r)
	}
	x.delivered++
	if x.delivered > 1 && !x.excused && !x.repeated {
		return fmt.Errorf("promise 2: %v is delivered %d times", x, x.delivered)
	}
	return nil
}

// deliverRun records that a run was published. The version counts as delivered with its last
// run.
func (m *model) deliverRun(x *operation, r *shard.Record) error {
	at := plannedOf(r)
	if x.repeated && r.Recurrence.Runs == runsEach { // of a series that a repeat began, maybe hours later
		x.runs.first = at
	}
	// A repeat may have moved a run of another version, or begun another series.
	another := x.repeated && (x.verb == reschedule || (at-x.runs.first)%between.Milliseconds() != 0)
	if gap := x.runs.gap(at); gap != 0 && !another {
		return fmt.Errorf("promise 1: run %d of %v is delivered, and run %d was not", at, x, gap)
	}
	if x.runs.delivered[at]++; x.runs.delivered[at] > 1 && !x.runs.excused[at] && !x.excused && !x.repeated {
		return fmt.Errorf("promise 2: run %d of %v is delivered %d times", at, x, x.runs.delivered[at])
	}
	if r.Recurrence.Runs == 1 {
		x.delivered++
	}
	return nil
}

// claimed checks a task that was just claimed. began is the step at which the claim
// began.
func (m *model) claimed(r shard.Record, began int, now int64) error {
	x := m.version(r.Op)
	switch {
	case x == nil:
		return fmt.Errorf("a task that nobody scheduled is claimed: %s", r.ID)
	case r.Due.UnixMilli() > now:
		return fmt.Errorf("promise 3: %v is claimed %d ms before its due time", x, r.Due.UnixMilli()-now)
	case x.parked && !x.excused:
		return fmt.Errorf("promise 7: %v is claimed although it is parked", x)
	}
	if y := m.superseded(x, began); y != nil {
		return fmt.Errorf("promise 5: %v is claimed after %v returned", x, y)
	}
	return nil
}

// observe compares a snapshot, taken at a step, with the promises.
func (m *model) observe(p, before *snapshot, step int, now int64) error {
	m.watch(p)
	for _, c := range p.copies {
		if err := m.copied(c, p, before, step, now); err != nil {
			return err
		}
	}
	for _, o := range m.operations {
		if p.live(o.id) {
			m.live[o.id] = step
		}
	}
	for _, o := range m.operations {
		if o.ended > 0 && o.seen != nil {
			if err := m.answered(o, p, now); err != nil {
				return err
			}
		}
	}
	return m.kept(p)
}

// watch records for the running operations which states they may have seen.
func (m *model) watch(p *snapshot) {
	for _, o := range m.operations {
		if o.seen == nil {
			continue
		}
		o.gone = o.gone || !p.live(o.id)
		for _, c := range p.of(o.id) {
			o.seen[taskView{string(c.Payload), c.Due.UnixMilli(), c.state()}] = true
			o.others = o.others || c.Op != o.number
		}
	}
}

// copied checks one copy of a task.
func (m *model) copied(c stored, p, before *snapshot, step int, now int64) error {
	x := m.version(c.Op)
	if x == nil || x.id != c.ID {
		return fmt.Errorf("shard %d holds a version of %s that nobody wrote", c.shard, c.ID)
	}
	if !x.written || x.repeated { // a repeated operation may have met a newer version
		x.written = true
		x.payload = string(c.Payload)
		if err := m.written(x, before, step); err != nil {
			return err
		}
	}
	if x.scheduled() && x.amqp != (c.AMQP != nil) || c.AMQP != nil && c.AMQP.RoutingKey != string(c.Payload) {
		return fmt.Errorf("promise 1: %v is stored as another message: %+v", x, c.Task)
	}
	if x.verb == reschedule {
		x.group, x.recurs = c.Group, c.Recurrence != nil
	}
	if c.Group != x.group {
		return fmt.Errorf("promise 1: %v is in group %q, and was put into %q", x, c.Group, x.group)
	}
	if c.Group != "" && !p.members[c.Member().Text()] {
		return fmt.Errorf("%v is stored, and isn't in the index of its group", x)
	}
	if string(c.Payload) != x.payload {
		return fmt.Errorf("promise 1: %v has payload %q, and had %q", x, c.Payload, x.payload)
	}
	if y := m.superseded(x, step); y != nil {
		return fmt.Errorf("promise 5: %v is in shard %d after %v returned", x, c.shard, y)
	}
	if home := p.placement.New(c.ID); c.shard != home && (!p.placement.Moving(c.ID) || c.shard != p.placement.Old(c.ID)) {
		return fmt.Errorf("promise 6: %v is stranded in shard %d of placement %v", x, c.shard, p.placement)
	}
	if c.Recurrence != nil {
		x.runs.see(plannedOf(&c.Record), c.lapsed(now) || c.Redelivered)
	} else {
		x.excused = x.excused || c.lapsed(now)
	}
	if c.state() == task.Parked {
		x.parked = true
		if !x.mayPark {
			return fmt.Errorf("promise 7: %v is parked, and nobody parked it", x)
		}
		if c.Reason != reason {
			return fmt.Errorf("promise 7: %v is parked for the reason %q", x, c.Reason)
		}
	}
	return nil
}

// written checks a version that is seen for the first time.
func (m *model) written(x *operation, before *snapshot, step int) error {
	if x.verb != reschedule {
		if x.payload != x.name {
			return fmt.Errorf("promise 1: %v has payload %q", x, x.payload)
		}
		return nil
	}
	if before.live(x.id) {
		return nil
	}
	for _, c := range m.of(x.id) {
		if c.verb == cancel && c.surely() && c.ended < step && c.ended > m.live[x.id] {
			return fmt.Errorf("promise 5: %v brought back what %v had removed", x, c)
		}
	}
	return nil
}

// answered checks the result that a finished operation returned to its caller.
func (m *model) answered(o *operation, p *snapshot, now int64) error {
	seen := o.seen
	o.seen = nil
	if o.crashed {
		return nil
	}
	switch {
	case errors.Is(o.err, task.ErrNotFound):
		if !o.gone && !o.repeated {
			return fmt.Errorf("%v returned that there is no such task, but it was stored all the time", o)
		}
		return nil
	case errors.Is(o.err, task.ErrExists):
		if !o.others {
			return fmt.Errorf("%v returned that the task exists already, but only its own version was stored", o)
		}
		return nil
	case o.err != nil:
		return fmt.Errorf("%v failed: %w", o, o.err)
	}
	switch o.verb {
	case get:
		if !seen[o.got] {
			return fmt.Errorf("%v returned %+v, which was never stored", o, o.got)
		}
		return nil
	case cancelGroup:
		return nil
	case cancel:
		if len(seen) == 0 {
			return fmt.Errorf("%v returned that it removed a task, but none was stored", o)
		}
		return nil
	case ifAbsent:
		if !o.gone {
			return fmt.Errorf("%v replaced a task", o)
		}
	case ifPresent:
		if !o.others {
			return fmt.Errorf("%v replaced no task", o)
		}
	}
	return m.due(o, p, now, seen)
}

// due checks the due time that an operation returned, with the states seen meanwhile.
func (m *model) due(o *operation, p *snapshot, now int64, seen map[taskView]bool) error {
	latest := o.when.at(now)
	if latest == now && m.meets(o, now, seen) {
		latest++
	}
	next := o.recurs && o.repeated // the repeat may have met the next run
	if o.due < o.when.early() || o.due > latest && !next {
		return fmt.Errorf("%v returned the due time %d, want %d to %d", o, o.due, o.when.early(),
			o.when.at(now))
	}
	for _, c := range p.of(o.id) {
		another := c.Recurrence != nil && // the next run
			(c.Due.UnixMilli() > o.due || o.verb == reschedule && c.Recurrence.Planned.IsZero())
		if c.Op == o.number && c.Due.UnixMilli() != o.due && !another {
			return fmt.Errorf("%v returned the due time %d, but %d is stored", o, o.due, c.Due.UnixMilli())
		}
	}
	return nil
}

// meets reports whether an operation may have replaced a version that is due in this
// millisecond, or in the next one after another replacement. Its own due time is then one
// millisecond later than requested.
func (m *model) meets(o *operation, now int64, seen map[taskView]bool) bool {
	near := func(due int64) bool { return due == now || due == now+1 }
	for s := range seen {
		if near(s.due) {
			return true
		}
	}
	return slices.ContainsFunc(m.of(o.id), func(x *operation) bool { return x != o && x.writes() && near(x.due) })
}

// kept checks that nothing is lost. A task may have several versions that nothing
// replaced or removed; at least one must be stored or delivered.
func (m *model) kept(p *snapshot) error {
	for i, x := range m.operations {
		if !x.writes() || !x.surely() || slices.ContainsFunc(m.operations[i+1:],
			func(y *operation) bool { return slices.Contains(m.of(x.id), y) && y.follows(x) && y.concerns(x) }) {
			continue
		}
		if !m.accounted(x, p) {
			return fmt.Errorf("promise 1: %v is neither stored nor delivered", x)
		}
	}
	return nil
}

// concurrent reports whether another operation on the task may have come after this one.
func (o *operation) concurrent(y *operation) bool {
	return y == o || (y.surely() || y.perhaps()) && !o.follows(y)
}

func (m *model) accounted(x *operation, p *snapshot) bool {
	groups := map[string]bool{} // of versions that may have been the last one
	for _, y := range m.of(x.id) {
		if y.writes() && x.concurrent(y) {
			groups[y.group] = true
		}
	}
	for _, y := range m.of(x.id) {
		if !x.concurrent(y) {
			continue
		}
		stored := slices.ContainsFunc(p.of(x.id), func(c stored) bool { return c.Op == y.number })
		group := y.verb == cancelGroup && groups[y.group]
		if y.verb == cancel || group || y.delivered > 0 || stored {
			return true
		}
	}
	return false
}
