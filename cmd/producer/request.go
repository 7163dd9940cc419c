package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// pipeFields are those of a request.
func pipeFields() []string { return append([]string{"verb", "topic", "if_absent"}, taskFields()...) }

// takes tells which fields a verb takes beside verb, topic and id.
func takes(verb string) (fields []string, known bool) {
	switch verb {
	case "schedule":
		return append([]string{"if_absent"}, taskFields()...), true
	case "reschedule":
		return []string{"in", "at"}, true
	case "cancel", "get":
		return nil, true
	}
	return nil, false
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
	fields := lineFields{known: pipeFields()}
	r = &request{done: make(chan struct{})}
	err = fields.parse(line)
	r.verb, r.Topic, r.ID = fields.text["verb"], fields.text["topic"], fields.text["id"]
	if _, named := fields.text["topic"]; !named {
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
func (r *request) fill(fields *lineFields) error {
	if err := fields.suit(r.verb); err != nil {
		return err
	}
	_, named := fields.text["id"]
	if !named {
		return errors.New("id: is needed")
	}
	if _, named = fields.text["topic"]; !named && r.Topic == "" {
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
	req.Topic, req.IfAbsent = r.Topic, fields.text["if_absent"] == "true"
	r.Request = req
	return err
}

// suit refuses fields that the verb doesn't take: somebody expects of them what
// will not be.
func (f *lineFields) suit(verb string) error {
	fields, known := takes(verb)
	if !known {
		return fmt.Errorf("verb: want schedule, cancel, reschedule or get; got %q", clip(verb))
	}
	given := slices.Sorted(maps.Keys(f.text))
	if f.headers != nil {
		given = append(given, "headers")
	}
	for _, name := range given {
		if !slices.Contains([]string{"verb", "topic", "id"}, name) && !slices.Contains(fields, name) {
			return fmt.Errorf("%s: %s takes no such field", name, verb)
		}
	}
	return nil
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
