package balance

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/wake"
)

const (
	// Silence is the time without a heartbeat after which the others consider a scanner
	// dead. It is also the time without an answer after which a scanner considers Redis
	// down.
	Silence = 3 * time.Second
	// interval is the time between two heartbeats.
	interval = time.Second
	// forget is how long a dead scanner stays in the list of members.
	forget = 10 * time.Minute
	// leaveTimeout bounds the call that removes a member from the fleet.
	leaveTimeout = 2 * time.Second
)

// Member is one scanner of the fleet, as it describes itself in its heartbeats.
type Member struct {
	// Topics holds what the member reports about topics. A topic with nothing to report
	// is left out.
	Topics map[string]TopicNote `json:"topics,omitempty"`

	Instance  string    `json:"instance"`
	Heartbeat time.Time `json:"heartbeat"`
	Alive     bool      `json:"alive"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	Started   time.Time `json:"started,omitzero"`
	Admin     string    `json:"admin,omitempty"`
	// Applied is the index of the newest configuration that the member applied: Consul's
	// index, or with a file the member's own count of its changes.
	Applied uint64 `json:"config_applied_index"`
	// Source is where the member reads the topics' documents; "" means that its version
	// doesn't report it. Refused is a message for operators. It names the topics whose
	// settings the fleet takes from another source than the member's; the member uses
	// those settings too. It is "" if there are none.
	Source  string `json:"config_source,omitempty"`
	Refused string `json:"refused,omitempty"`
	// Away reports that the member can't read the source now. It keeps the settings in
	// force. Errors has the reason under "".
	Away bool `json:"config_source_away,omitempty"`
	// Format is config.Format of the member's version. It says which keys of topic
	// documents the member knows. 0 means that the version doesn't report it.
	Format int `json:"config_format,omitempty"`
	// Documents is a hash of all topics' documents in force: members with the same
	// documents have the same hash. 0 means that the version doesn't report it, or that
	// the member has read no documents. Don't compare Applied instead. With a file, each
	// member counts its own. With Consul, it depends on when the member asked.
	Documents uint64 `json:"config_documents,string,omitempty"`
	// Errors has the configuration errors by topic; "" stands for the source as a whole.
	Errors map[string]string `json:"config_errors,omitempty"`
	// Problems has everything that the member has found.
	Problems []problem.Problem `json:"problems,omitzero"`
	// Blocked has the kind of problem by topic, but only for problems that waiting doesn't
	// fix.
	Blocked map[string]string `json:"blocked,omitempty"`
	// Applying names the topics whose newest settings RabbitMQ has neither accepted nor
	// refused so far.
	Applying []string `json:"applying,omitempty"`
}

// Members lists the scanners that sent a heartbeat recently, by name.
func Members(ctx context.Context, store *shard.Store) ([]Member, error) {
	heartbeats, now, err := store.Registry().Fleet(ctx)
	if err != nil {
		return nil, err
	}
	members := make([]Member, 0, len(heartbeats))
	for _, h := range heartbeats {
		alive := now.Sub(h.At) <= Silence
		if h.Note == "" && !alive {
			continue // it left, and a delayed heartbeat came after that
		}
		m := Member{Instance: h.Instance}
		_ = json.Unmarshal([]byte(h.Note), &m) // a note of another version may be unreadable
		m.Heartbeat, m.Alive = h.At, alive
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Instance, b.Instance) })
	return members, nil
}

// Live returns the members that are alive.
func Live(members []Member) []Member {
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !m.Alive })
}

// HeartbeatConfig configures the Heartbeat of one member. All fields are required.
type HeartbeatConfig struct {
	Store *shard.Store
	// Instance names the member; it must be unique in the fleet.
	Instance string
	// Describe returns what the member reports about itself. It is called with a heartbeat, once
	// in Pace. Without a Pace it is called with each.
	Describe func() Member
	Pace     func() time.Duration
	// Beat says when in a second heartbeats are sent.
	Beat wake.Beat
	// Advice returns what to append to an error from Redis for operators; "" for nothing.
	Advice func(err string) string
	Log    *slog.Logger
}

// Heartbeat sends one member's heartbeats, and knows how many members live. State may be
// called at any time, Run once.
type Heartbeat struct {
	cfg   HeartbeatConfig
	state atomic.Pointer[State]
	// Only Run uses these.
	advised   string    // the advice in the last log line
	described time.Time // when the last note was stored; zero after a failure
}

// State holds what a member knows from its heartbeats.
type State struct {
	// Live is how many scanners lived at the last heartbeat that was answered; 1 before
	// the first.
	Live int
	// Answered is when the last heartbeat was answered; zero if none was.
	Answered time.Time
	// Full: Redis was at maxmemory then, and refuses new data.
	Full bool
	// Failure is why the newest heartbeat was not answered, with advice; "" if it was.
	// Cause is that error; nil if it was.
	Failure string
	Cause   error
}

// NewHeartbeat returns a Heartbeat. It starts nothing; Run does.
func NewHeartbeat(cfg HeartbeatConfig) *Heartbeat {
	h := &Heartbeat{cfg: cfg}
	h.state.Store(&State{Live: 1})
	return h
}

// State returns the newest state.
func (h *Heartbeat) State() State { return *h.state.Load() }

// Run sends a heartbeat every second until ctx ends, and then removes the member from the
// fleet. It does both, so that no heartbeat follows the removal.
func (h *Heartbeat) Run(ctx context.Context) {
	for ctx.Err() == nil {
		h.beat(ctx)
		retry.Sleep(ctx, h.cfg.Beat.Until(interval))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := h.cfg.Store.Registry().Leave(ctx, h.cfg.Instance); err != nil {
		h.cfg.Log.WarnContext(ctx, "member not removed from the fleet", "error", err)
	}
}

func (h *Heartbeat) beat(parent context.Context) {
	note := h.note() // first, because it takes a while for thousands of topics
	ctx, cancel := context.WithTimeout(parent, Silence)
	defer cancel()
	h.cfg.Store.Relearn(ctx)
	brief, end := context.WithTimeout(ctx, Silence/2) // the heartbeat's error says more
	full, err := h.describe(brief, note)              // first, so that no other scanner finds this one without its note
	end()
	live, silent := h.cfg.Store.Registry().Heartbeat(ctx, h.cfg.Instance, Silence, forget)
	if silent != nil {
		err = silent
	}
	switch {
	case err == nil:
		before := h.state.Swap(&State{Live: live, Answered: time.Now(), Full: full})
		if before.Failure != "" {
			h.cfg.Log.InfoContext(ctx, "redis serves this scanner again")
		}
	case parent.Err() == nil:
		h.fail(ctx, err)
	}
}

// note returns the member's note about itself, if it is time to store one; else nil.
func (h *Heartbeat) note() []byte {
	if h.cfg.Pace != nil && time.Since(h.described) <= h.cfg.Pace()-interval/2 {
		return nil
	}
	note, _ := json.Marshal(h.cfg.Describe()) // strings, numbers and times can't fail
	return note
}

// describe stores the member's note about itself, unless it is nil. It reports whether Redis was
// at maxmemory when it was asked last.
func (h *Heartbeat) describe(ctx context.Context, note []byte) (full bool, err error) {
	if note == nil {
		return h.State().Full, nil
	}
	h.described = time.Now()
	return h.cfg.Store.Registry().Describe(ctx, h.cfg.Instance, note)
}

// fail records why a heartbeat wasn't answered. It logs that once per outage, and again
// when there is other advice.
func (h *Heartbeat) fail(ctx context.Context, err error) {
	h.described = time.Time{}
	state, advice := h.State(), h.cfg.Advice(err.Error())
	first := state.Failure == ""
	state.Failure, state.Cause = err.Error()+advice, err
	h.state.Store(&state)
	if first || (advice != "" && advice != h.advised) {
		h.advised = advice
		h.cfg.Log.WarnContext(ctx, "redis does not serve this scanner", "error", state.Failure)
	}
}
