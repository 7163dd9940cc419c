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

// Transcript is one conversation between a producer and Redis. It says what the producer
// is asked, what happens meanwhile, which scripts it must send, and what it must answer.
// It ends with the tasks that must be stored. docs/protocol/conform/README.md describes
// the format.
type Transcript struct {
	// Name is the file's name without .json.
	Name string `json:"-"`
	// About describes the purpose of the transcript, for people.
	About string `json:"about"`
	// Steps are executed in order.
	Steps []Step `json:"steps"`
	// After is everything in the topic's shards at the end.
	After State `json:"after"`
}

// Step is one action of the kit. Exactly one of its fields is set.
type Step struct {
	// Shards makes the topic with this many shards. Without this step there is no topic.
	Shards int `json:"shards,omitempty"`
	// Store schedules a task, as another producer does.
	Store *Stored `json:"store,omitempty"`
	// Lease claims all due tasks, as a scanner does. This ID must be among them.
	Lease string `json:"lease,omitempty"`
	// Return releases a leased task, as a scanner does.
	Return *Return `json:"return,omitempty"`
	// Begin begins a change to this many shards, and shows it to all of them.
	Begin int `json:"begin,omitempty"`
	// BeginUnseen begins a change that no shard has seen.
	BeginUnseen int `json:"begin_unseen,omitempty"`
	// Export exports a misplaced task to the kit's mover, Import imports it into its new
	// shard, and Move does both.
	Export string `json:"export,omitempty"`
	Import string `json:"import,omitempty"`
	Move   string `json:"move,omitempty"`
	// Finish moves all misplaced tasks, and ends the change.
	Finish bool `json:"finish,omitempty"`
	// Remove removes the topic.
	Remove bool `json:"remove,omitempty"`
	// Raw runs a command that no program would: for example, it writes an unreadable
	// record, or a fence as after a failover.
	Raw []string `json:"raw,omitempty"`
	// Fault waits for a command of the program.
	Fault *Fault `json:"fault,omitempty"`
	// Deliver executes the script that a fault kept. The value is Redis's expected
	// answer.
	Deliver string `json:"deliver,omitempty"`
	// Ask sends a line to the program.
	Ask *Ask `json:"ask,omitempty"`
}

// Stored is a task for the step Store.
type Stored struct {
	ID          string            `json:"id"`
	At          int64             `json:"at"` // Redis's time in ms; the past means now
	Payload     string            `json:"payload"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
}

// Return says how a leased task is released.
type Return struct {
	ID     string `json:"id"`
	Park   bool   `json:"park,omitempty"`
	Reason string `json:"reason"`
}

// Outcome is a fault's effect on a command, after the steps in Do.
type Outcome string

// These are the outcomes.
const (
	// Carry lets the command pass.
	Carry Outcome = ""
	// Lose executes the command, but drops its reply and the connection.
	Lose Outcome = "lose"
	// Keep ends the connection at once, and keeps the command for the step Deliver.
	Keep Outcome = "keep"
	// Late delays a script until its not_after has passed.
	Late Outcome = "late"
	// Behind makes TIME return a time one hour in the past.
	Behind Outcome = "behind"
	// Refuse answers the command with an error instead of Redis.
	Refuse Outcome = "refuse"
	// Unloaded makes Redis forget the script's hash.
	Unloaded Outcome = "unloaded"
)

const behindSeconds = 3600

// Fault is an event for one command of the program.
type Fault struct {
	// At is the command: a script, "time", or "placement" for a read of the placement.
	At string `json:"at"`
	// Nth counts the commands that meet no earlier fault. Defaults to the first.
	Nth int `json:"nth,omitempty"`
	// Do are steps that are executed when the command has arrived, before it goes on.
	Do []Step `json:"do,omitempty"`
	// Then is the effect on the command.
	Then Outcome `json:"then,omitempty"`
	// Error is the answer with Refuse.
	Error string `json:"error,omitempty"`

	meanwhile func(context.Context) error
}

func (f *Fault) String() string {
	if f.Then == Carry {
		return "at " + f.At
	}
	return string(f.Then) + " at " + f.At
}

// Ask is a request and its expected results.
type Ask struct {
	// Request is the line as in docs/pipe.md. The kit adds "topic" if it is missing. A
	// text may be {"repeat": "x", "times": 300}.
	Request map[string]any `json:"request,omitempty"`
	// Line is sent unchanged instead. It is for lines that aren't requests, or if the
	// order of fields matters.
	Line string `json:"line,omitempty"`
	// Answer holds fields that the answer must have. A list holds several correct values.
	// A time is a number of ms, or relative: see compareTime.
	Answer map[string]any `json:"answer"`
	// Scripts must be sent in this order. Notes that only read are left out.
	Scripts []Sent `json:"scripts"`
}

// Sent is a script that must be sent.
type Sent struct {
	Script string `json:"script"`
	// Shard is the shard that it must reach. A note has none.
	Shard *int `json:"shard,omitempty"`
	// Answer is Redis's answer. Faults make it "lost" or "kept".
	Answer string `json:"answer"`
	// With holds arguments by their names in the script's header.
	With map[string]string `json:"with,omitempty"`
	// Optional scripts with the same word are either all sent, or none of them.
	Optional string `json:"optional,omitempty"`
}

// State is the contents of the topic's shards.
type State struct {
	Tasks []Task `json:"tasks"`
	// Handled holds the IDs that each shard has handled in the current change.
	Handled map[string][]string `json:"handled,omitempty"`
}

// Task is one stored task.
type Task struct {
	Shard int `json:"shard"`
	// State is waiting, leased or parked.
	State string `json:"state"`
	ID    string `json:"id"`
	// Due is as in Ask.Answer. Without it, the due time isn't compared.
	Due         any               `json:"due_ms,omitempty"`
	Payload     string            `json:"payload"`
	Base64      bool              `json:"base64,omitempty"` // Payload is bytes in base64
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Attempts    int               `json:"attempts,omitempty"`
	// Unreadable is set for a record that can't be read. Only its place is compared.
	Unreadable bool `json:"unreadable,omitempty"`
}

// Transcripts returns the transcripts in docs/protocol/conform, sorted by name.
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

// ids returns the IDs that the transcript names, to delete their keys.
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
