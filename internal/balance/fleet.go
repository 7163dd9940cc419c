package balance

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
)

const (
	// Silence is how long a scanner may be silent before the others take it for dead,
	// and how long heartbeats may go unanswered before it takes Redis for down.
	Silence = 3 * time.Second
	// interval is the time between two heartbeats.
	interval = time.Second
	// forget is how long a dead scanner is still listed.
	forget = 10 * time.Minute
	// leaveTimeout bounds the call that takes a member off the fleet.
	leaveTimeout = 2 * time.Second
)

// Member is one scanner of the fleet as it described itself.
type Member struct {
	// Topics are those that it has something to say of.
	Topics map[string]TopicNote `json:"topics,omitempty"`

	Instance  string    `json:"instance"`
	Heartbeat time.Time `json:"heartbeat"`
	Alive     bool      `json:"alive"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	Started   time.Time `json:"started,omitzero"`
	Admin     string    `json:"admin,omitempty"`
	Applied   uint64    `json:"config_applied_index"`
	// Source is where the topics' documents come from that the member works by; "" is a
	// version that doesn't say, or a member that doesn't work yet. Refused is why it may not.
	Source  string `json:"config_source,omitempty"`
	Refused string `json:"refused,omitempty"`
	// Away says that the source can't be read right now: what is in force stays so. Errors
	// has why, under "".
	Away bool `json:"config_source_away,omitempty"`
	// Format is config.Format of the member's version, which says what keys of topics'
	// documents it knows. 0 is a version that doesn't say.
	Format int `json:"config_format,omitempty"`
	// Documents is a hash of the documents in force, all topics' together: members with the
	// same documents say the same. 0 is a version that doesn't say, or a member that has
	// read none. Applied can't tell: it is an index of the source's, which differs with when
	// a member asked.
	Documents uint64            `json:"config_documents,string,omitempty"`
	Errors    map[string]string `json:"config_errors,omitempty"` // by topic; "" for the source as a whole
	Troubles  map[string]string `json:"troubles,omitempty"`      // by topic: why it isn't served right now
	Blocked   map[string]string `json:"blocked,omitempty"`       // by topic, of those in trouble: the kind, where it is one that waiting doesn't mend
	Applying  []string          `json:"applying,omitempty"`      // topics whose newest settings RabbitMQ has not judged yet
	Hazards   []string          `json:"hazards,omitempty"`       // how Redis is set to lose acknowledged tasks
}

// Members lists the scanners heard of lately, those that are silent the longest first.
func Members(ctx context.Context, store *shard.Store) ([]Member, error) {
	heartbeats, now, err := store.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	members := make([]Member, 0, len(heartbeats))
	for _, h := range heartbeats {
		alive := now.Sub(h.At) <= Silence
		if h.Note == "" && !alive {
			continue // it left: a heartbeat that lay in a socket came after its leave
		}
		m := Member{Instance: h.Instance}
		_ = json.Unmarshal([]byte(h.Note), &m) // a note of another version is shown by its name alone
		m.Heartbeat, m.Alive = h.At, alive
		members = append(members, m)
	}
	return members, nil
}

// HeartbeatConfig of one member. All fields are required.
type HeartbeatConfig struct {
	Store *shard.Store
	// Instance names the member; it must be unique in the fleet.
	Instance string
	// Describe returns what the member says of itself; it is called at each heartbeat.
	Describe func() Member
	// After is called after each heartbeat, answered or not.
	After func()
	// Advice returns what to add to an error of Redis's for an operator; "" for nothing.
	Advice func(err string) string
	Log    *slog.Logger
}

// Heartbeat keeps one member in the fleet, and knows how many live. State may be called
// at any time, Run once.
type Heartbeat struct {
	cfg     HeartbeatConfig
	state   atomic.Pointer[State]
	advised string // the advice of the last line in the log; Run's own
}

// State is what a member knows by its heartbeats.
type State struct {
	// Live is how many scanners live, as of the last heartbeat that was answered; 1
	// before the first.
	Live int
	// Answered is when that was; zero for never.
	Answered time.Time
	// Failure is why the newest heartbeat was not answered, with advice; "" if it was.
	Failure string
}

// NewHeartbeat puts a heartbeat together; Run begins it.
func NewHeartbeat(cfg HeartbeatConfig) *Heartbeat {
	h := &Heartbeat{cfg: cfg}
	h.state.Store(&State{Live: 1})
	return h
}

// State returns what is known now.
func (h *Heartbeat) State() State { return *h.state.Load() }

// Run tells the fleet every second that the member lives, until ctx ends; then it takes
// the member off the fleet. That is done here, since no heartbeat may follow it.
func (h *Heartbeat) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		h.beat(ctx)
		h.cfg.After()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := h.cfg.Store.Leave(ctx, h.cfg.Instance); err != nil {
		h.cfg.Log.WarnContext(ctx, "fleet not left", "error", err)
	}
}

func (h *Heartbeat) beat(parent context.Context) {
	ctx, cancel := context.WithTimeout(parent, Silence)
	defer cancel()
	h.cfg.Store.Relearn(ctx)
	live, err := h.cfg.Store.Heartbeat(ctx, h.cfg.Instance, Silence, forget)
	if err == nil {
		note, _ := json.Marshal(h.cfg.Describe()) // strings, numbers and times: no error
		err = h.cfg.Store.Describe(ctx, h.cfg.Instance, note)
	}
	switch {
	case err == nil:
		before := h.state.Swap(&State{Live: live, Answered: time.Now()})
		if before.Failure != "" {
			h.cfg.Log.InfoContext(ctx, "redis serves this scanner again")
		}
	case parent.Err() == nil:
		h.fail(ctx, err)
	}
}

// fail keeps why a heartbeat was not answered, and logs it once for each outage; again
// when there is advice that the last line had not.
func (h *Heartbeat) fail(ctx context.Context, err error) {
	state, advice := h.State(), h.cfg.Advice(err.Error())
	first := state.Failure == ""
	state.Failure = err.Error() + advice
	h.state.Store(&state)
	if first || (advice != "" && advice != h.advised) {
		h.advised = advice
		h.cfg.Log.WarnContext(ctx, "redis does not serve this scanner", "error", state.Failure)
	}
}
