package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// FleetAlive is how long a scanner may be silent before it counts as dead.
const FleetAlive = 3 * time.Second

// fleetForget is how long a dead scanner is still listed.
const fleetForget = 10 * time.Minute

// Heartbeat tells the fleet that an instance lives and answers how many do.
func (s *Store) Heartbeat(ctx context.Context, instance string) (int, error) {
	args := []any{instance, FleetAlive.Milliseconds(), fleetForget.Milliseconds()}
	reply, err := s.run(ctx, call{script: "heartbeat", keys: []string{s.fleetKey()}, args: args}).Slice()
	if err != nil {
		return 0, fmt.Errorf("heartbeat: %w", redisError(err))
	}
	live, _ := reply[0].(int64)
	for _, gone := range reply[1:] {
		if err := s.rdb.HDel(ctx, s.fleetNotesKey(), fmt.Sprint(gone)).Err(); err != nil {
			return int(live), fmt.Errorf("forget a dead scanner: %w", err)
		}
	}
	return int(live), nil
}

// Leave takes an instance off the fleet.
func (s *Store) Leave(ctx context.Context, instance string) error {
	if err := s.rdb.ZRem(ctx, s.fleetKey(), instance).Err(); err != nil {
		return fmt.Errorf("leave the fleet: %w", err)
	}
	return s.rdb.HDel(ctx, s.fleetNotesKey(), instance).Err()
}

// Member is one scanner of the fleet as it described itself.
type Member struct {
	Instance  string            `json:"instance"`
	Heartbeat time.Time         `json:"heartbeat"`
	Alive     bool              `json:"alive"`
	Host      string            `json:"host"`
	PID       int               `json:"pid"`
	Version   string            `json:"version"`
	Started   time.Time         `json:"started,omitzero"`
	Admin     string            `json:"admin,omitempty"`
	Applied   uint64            `json:"config_applied_index"`
	Errors    map[string]string `json:"config_errors,omitempty"` // by topic; "" for the source as a whole
	Troubles  map[string]string `json:"troubles,omitempty"`      // by topic: why it isn't served right now
}

// Describe stores what an instance says of itself.
func (s *Store) Describe(ctx context.Context, m Member) error {
	note, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("describe instance %s: %w", m.Instance, err)
	}
	if err := s.rdb.HSet(ctx, s.fleetNotesKey(), m.Instance, note).Err(); err != nil {
		return fmt.Errorf("describe instance %s: %w", m.Instance, err)
	}
	return nil
}

// Fleet lists the scanners heard of lately, the living first by name.
func (s *Store) Fleet(ctx context.Context) ([]Member, error) {
	now, err := s.askClock(ctx)
	if err != nil {
		return nil, err
	}
	beats, err := s.rdb.ZRangeWithScores(ctx, s.fleetKey(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list the fleet: %w", err)
	}
	notes, err := s.rdb.HGetAll(ctx, s.fleetNotesKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("list the fleet: %w", err)
	}
	members := make([]Member, 0, len(beats))
	for _, b := range beats {
		name, _ := b.Member.(string)
		m := Member{Instance: name}
		alive := now-int64(b.Score) <= FleetAlive.Milliseconds()
		if notes[name] == "" && !alive {
			continue // it left: a heartbeat that lay in a socket came after its leave
		}
		_ = json.Unmarshal([]byte(notes[name]), &m) // a note of another version is shown by its name alone
		m.Heartbeat = time.UnixMilli(int64(b.Score)).UTC()
		m.Alive = alive
		members = append(members, m)
	}
	return members, nil
}
