package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/docs/protocol"
)

// Transcript is one conversation between a producer and Redis: what is asked of the
// producer, what happens meanwhile, which scripts it has to send, what it has to
// answer, and what is stored in the end. docs/protocol/conform/README.md describes the
// files.
type Transcript struct {
	// Name is that of the file.
	Name string `json:"-"`
	// About says what is held here, for people.
	About string `json:"about"`
	// Steps in their order.
	Steps []Step `json:"steps"`
	// After is all that the topic's shards hold at the end.
	After State `json:"after"`
}

// Step is one thing that the kit does; one of its fields is set.
type Step struct {
	// Shards makes the topic, with so many. Without this step there is none.
	Shards int `json:"shards,omitempty"`
	// Store schedules a task, as another producer does.
	Store *Stored `json:"store,omitempty"`
	// Lease claims what is due, as a scanner does; this ID must be among it.
	Lease string `json:"lease,omitempty"`
	// Return gives a leased task back, as a scanner does.
	Return *Return `json:"return,omitempty"`
	// Begin begins a change to so many shards, and shows it to all of them.
	Begin int `json:"begin,omitempty"`
	// BeginUnseen begins one that no shard has seen yet.
	BeginUnseen int `json:"begin_unseen,omitempty"`
	// Export exports a misplaced task to the kit's mover, Import has its new shard take it
	// over, Move is both.
	Export string `json:"export,omitempty"`
	Import string `json:"import,omitempty"`
	Move   string `json:"move,omitempty"`
	// Finish moves all that is misplaced, and ends the change.
	Finish bool `json:"finish,omitempty"`
	// Remove removes the topic.
	Remove bool `json:"remove,omitempty"`
	// Raw writes what no program would: a record that can't be read, a fence after a
	// failover.
	Raw []string `json:"raw,omitempty"`
	// Fault waits for a command of the program's.
	Fault *Fault `json:"fault,omitempty"`
	// Deliver carries out the script that a fault kept back, and is what Redis has to
	// answer.
	Deliver string `json:"deliver,omitempty"`
	// Ask is a line for the program.
	Ask *Ask `json:"ask,omitempty"`
}

// Stored is a task for the step Store.
type Stored struct {
	ID          string            `json:"id"`
	At          int64             `json:"at"` // Redis ms; the past means now
	Payload     string            `json:"payload"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
}

// Return says how a leased task is given back.
type Return struct {
	ID     string `json:"id"`
	Park   bool   `json:"park,omitempty"`
	Reason string `json:"reason"`
}

// Outcome is what a fault does to a command, after what it does meanwhile.
type Outcome string

// The outcomes.
const (
	// Carry lets it pass.
	Carry Outcome = ""
	// Lose has it carried out; the reply is dropped, and the connection with it.
	Lose Outcome = "lose"
	// Keep ends the connection at once, and keeps the command for the step Deliver.
	Keep Outcome = "keep"
	// Late holds a script up until its not_after is past.
	Late Outcome = "late"
	// Behind has TIME answer what it was an hour before.
	Behind Outcome = "behind"
	// Refuse answers it with an error in Redis's place.
	Refuse Outcome = "refuse"
	// Unloaded has Redis not know the script by its hash.
	Unloaded Outcome = "unloaded"
)

const behindSeconds = 3600

// Fault is what happens to one command of the program's.
type Fault struct {
	// At is the command: a script, "time", or "placement", the reading of it.
	At string `json:"at"`
	// Nth of these that meets no fault in front of this one. Defaults to the first.
	Nth int `json:"nth,omitempty"`
	// Do are steps that are done when it has come, before it goes on.
	Do []Step `json:"do,omitempty"`
	// Then is what becomes of it.
	Then Outcome `json:"then,omitempty"`
	// Error is what Refuse answers.
	Error string `json:"error,omitempty"`

	meanwhile func(context.Context) error
}

func (f *Fault) String() string {
	if f.Then == Carry {
		return "at " + f.At
	}
	return string(f.Then) + " at " + f.At
}

// Ask is a request and what has to come of it.
type Ask struct {
	// Request is the line as docs/pipe.md has it; "topic" is added where it is missing.
	// A text may be {"repeat": "x", "times": 300}.
	Request map[string]any `json:"request,omitempty"`
	// Line is sent in its place as it is, for what is no request, and where the order
	// of fields matters.
	Line string `json:"line,omitempty"`
	// Answer holds fields that the answer must have. A list holds the values that are
	// right. A time is a number of ms, or relative: see dueRange.
	Answer map[string]any `json:"answer"`
	// Scripts that have to be sent, in this order. Notes that only ask are left out.
	Scripts []Sent `json:"scripts"`
}

// Sent is a script that has to be sent.
type Sent struct {
	Script string `json:"script"`
	// Shard it must reach; a note has none.
	Shard *int `json:"shard,omitempty"`
	// Answer of Redis; "lost" and "kept" are those of faults.
	Answer string `json:"answer"`
	// With are arguments by their names in the script's header.
	With map[string]string `json:"with,omitempty"`
	// Optional scripts with the same word are all sent, or none.
	Optional string `json:"optional,omitempty"`
}

// State is what the topic's shards hold.
type State struct {
	Tasks []Task `json:"tasks"`
	// Handled is the IDs that each shard took over in the change that is under way.
	Handled map[string][]string `json:"handled,omitempty"`
}

// Task is one stored task.
type Task struct {
	Shard int `json:"shard"`
	// State is waiting, leased or parked.
	State string `json:"state"`
	ID    string `json:"id"`
	// Due as in Ask.Answer; left out, it is not compared.
	Due         any               `json:"due_ms,omitempty"`
	Payload     string            `json:"payload"`
	Base64      bool              `json:"base64,omitempty"` // Payload is bytes in base64
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Attempts    int               `json:"attempts,omitempty"`
	// Unreadable records are compared by nothing but their place.
	Unreadable bool `json:"unreadable,omitempty"`
}

// Transcripts returns those of docs/protocol/conform in the order of their names.
func Transcripts() ([]Transcript, error) {
	files, err := protocol.Files.ReadDir("conform")
	if err != nil {
		return nil, err
	}
	var all []Transcript
	for _, f := range files {
		text, err := protocol.Files.ReadFile("conform/" + f.Name())
		if err != nil {
			return nil, err
		}
		t, err := parse(strings.TrimSuffix(f.Name(), ".json"), text)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Transcript) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func parse(name string, text []byte) (Transcript, error) {
	t := Transcript{Name: name}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	in.UseNumber()
	if err := in.Decode(&t); err != nil {
		return t, fmt.Errorf("transcript %s: %w", name, err)
	}
	return t, nil
}

// ids are those that the transcript speaks of, for what lies under their names.
func (t *Transcript) ids() []string {
	var ids []string
	var walk func(steps []Step)
	walk = func(steps []Step) {
		for _, s := range steps {
			if s.Ask != nil {
				if id, ok := s.Ask.Request["id"].(string); ok {
					ids = append(ids, id)
				}
			}
			if s.Store != nil {
				ids = append(ids, s.Store.ID)
			}
			if s.Fault != nil {
				walk(s.Fault.Do)
			}
		}
	}
	walk(t.Steps)
	return ids
}
