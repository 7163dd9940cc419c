package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
)

// State says how far an audited command is.
type State string

// The states.
const (
	// Started: the command runs, or its process died.
	Started State = "started"
	Done    State = "done"
	// Failed: the command ended with an error, or was interrupted. Counts has what it did.
	Failed State = "failed"
)

// Entry is one operator's command that changes tasks, as `scanner audit` shows it.
type Entry struct {
	// By names the person or the token that ran the command; Host is the machine.
	By   string `json:"by"`
	Host string `json:"host"`
	// Command, as in "tasks move".
	Command string `json:"command"`
	Topic   string `json:"topic,omitempty"`
	// Filter says in words which tasks were meant.
	Filter string  `json:"filter,omitempty"`
	State  State   `json:"state"`
	Counts *Counts `json:"counts,omitempty"`
	Error  string  `json:"error,omitempty"`
	// Began and Ended are by Redis's clock. Ended is zero while State is Started.
	Began time.Time `json:"-"`
	Ended time.Time `json:"-"`
}

// textBytes limits each text of an entry, so that all of them fit into a note.
const textBytes = 1024

// endWithin limits how long an entry is completed, after an interruption too.
const endWithin = 5 * time.Second

// Audited writes an entry to Redis, carries out the command with do, and completes the
// entry. If the entry can't be written, do isn't called. If it can't be completed, it stays
// Started, and the error says so.
func Audited(ctx context.Context, store *shard.Store, e Entry, do func() (Counts, error)) (Counts, error) {
	id := OpText(shard.NewOp())
	e.State, e.Counts, e.Error = Started, nil, ""
	if err := store.Registry().BeginAudit(ctx, id, e.note()); err != nil {
		if shard.Denied(err) {
			err = fmt.Errorf("%w; give the user the rights of deploy/redis/operator.acl, which has the key *:audit since "+
				"0.2.0", err)
		}
		return Counts{}, fmt.Errorf("nothing was changed: %w", luascript.Unasked(err))
	}
	n, err := do()
	e.State, e.Counts = Done, &n
	if err != nil {
		e.State, e.Error = Failed, err.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	return n, errors.Join(err, store.Registry().EndAudit(ctx, id, e.note()))
}

func (e Entry) note() string {
	for _, text := range []*string{&e.By, &e.Host, &e.Command, &e.Topic, &e.Filter, &e.Error} {
		*text = shortened(*text)
	}
	note, _ := json.Marshal(e) // has no value that can't be encoded
	return string(note)
}

// shortened cuts a text that is too long, between two characters.
func shortened(text string) string {
	if len(text) <= textBytes {
		return text
	}
	end := 0
	for at := range text {
		if at > textBytes {
			break
		}
		end = at
	}
	return text[:end] + "..."
}

// Audit returns the entries of a topic, or all if topic is "", the newest first. An entry
// that a newer duefleet wrote in another form has only its times.
func Audit(ctx context.Context, store *shard.Store, topic string) ([]Entry, error) {
	all, err := store.Registry().Audit(ctx)
	entries := make([]Entry, 0, len(all))
	for _, a := range all {
		var e Entry
		_ = json.Unmarshal([]byte(a.Note), &e)
		e.Began, e.Ended = a.Began, a.Ended
		if topic == "" || e.Topic == topic {
			entries = append(entries, e)
		}
	}
	return entries, err
}
