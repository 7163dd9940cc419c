package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// pipeLine is a line that is a request.
type pipeLine struct {
	Verb     text `json:"verb"`
	Topic    text `json:"topic"`
	IfAbsent flag `json:"if_absent"`
	taskLine
}

// given are the fields that a line has, beside verb, topic and id.
func (f *pipeLine) given() (names []string) {
	for _, field := range []struct {
		name  string
		given bool
	}{
		{"at", f.At.given}, {"content_type", f.ContentType.given}, {"headers", f.Headers != nil}, {"if_absent", f.IfAbsent.given},
		{"in", f.In.given}, {"payload", f.Payload.given}, {"payload_base64", f.Base64.given},
	} {
		if field.given {
			names = append(names, field.name)
		}
	}
	return names
}

// suit refuses fields that the verb doesn't take: somebody expects of them what
// will not be.
func (f *pipeLine) suit() error {
	var takes []string
	switch f.Verb.value {
	case "schedule":
		return nil // all of them
	case "reschedule":
		takes = []string{"in", "at"}
	case "cancel", "get":
	default:
		return fmt.Errorf("verb: want schedule, cancel, reschedule or get; got %q", clip(f.Verb.value))
	}
	for _, name := range f.given() {
		if !slices.Contains(takes, name) {
			return fmt.Errorf("%s: %s takes no such field", name, f.Verb.value)
		}
	}
	return nil
}

// request is one line of a pipe.
type request struct {
	line int
	verb string
	producer.Request
	size   int   // in bytes, as it was read
	weight int64 // its share of the memory budget

	done   chan struct{} // closed when there is an answer
	answer any
}

// parseRequest reads one line. What is wrong is a cli.UsageError; the request then
// holds what was understood. The rules of input are the library's to check.
func parseRequest(line []byte, topic string) (r *request, err error) {
	var fields pipeLine
	r = &request{done: make(chan struct{})}
	err = parseLine(line, &fields)
	r.verb, r.Topic, r.ID = fields.Verb.value, fields.Topic.value, fields.ID.value
	if !fields.Topic.given {
		r.Topic = topic
	}
	if err == nil {
		err = r.fill(&fields)
	}
	if err != nil {
		return r, cli.UsageError(err.Error())
	}
	return r, nil
}

// fill gives the fields their meaning.
func (r *request) fill(fields *pipeLine) error {
	if err := fields.suit(); err != nil {
		return err
	}
	if !fields.ID.given {
		return errors.New("id: is needed")
	}
	if !fields.Topic.given && r.Topic == "" {
		return errors.New("topic: is needed, here or with --topic")
	}
	if r.verb != "schedule" && r.verb != "reschedule" {
		return nil
	}
	w, err := fields.when()
	if err != nil {
		return err
	}
	req, err := fields.request(w)
	req.Topic, req.IfAbsent = r.Topic, fields.IfAbsent.value
	r.Request = req
	return err
}

func (r *request) named() named { return named{r.Topic, r.ID} }

// answerHead is what every answer begins with.
type answerHead struct {
	Line int    `json:"line"`
	Verb string `json:"verb,omitempty"`
	Code int    `json:"code"`
}

// refusal is the answer to a request that was not done, or not for sure.
type refusal struct {
	answerHead
	Topic string `json:"topic,omitempty"`
	ID    string `json:"id,omitempty"`
	Error string `json:"error"`
	// Retry: the same request may do better later, and does no harm.
	Retry bool `json:"retry"`
}

func (r *request) head() answerHead { return answerHead{Line: r.line, Verb: r.verb} }

// refuse answers with an error, as the verb would print it.
func (r *request) refuse(err error) {
	head := r.head()
	head.Code = cli.Code(err)
	known := errors.Is(err, task.ErrInvalid) || errors.Is(err, task.ErrUnknownTopic)
	r.reply(refusal{
		answerHead: head, Topic: r.Topic, ID: r.ID,
		Error: cli.OneLine(strings.TrimSpace(err.Error() + advice(err))), Retry: head.Code == cli.Failed && !known,
	})
}

// reply notes the answer; it is given once.
func (r *request) reply(answer any) {
	r.answer = answer
	close(r.done)
}
