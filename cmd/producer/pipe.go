package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

const (
	// pipeBatchers is how many calls to Redis are in flight at most.
	pipeBatchers = 16
	// pipeAhead is how many requests are read before the first of them is answered, at
	// most.
	pipeAhead = 1000
)

func pipeCommand(conn *connection) *cobra.Command {
	var topic string
	cmd := &cobra.Command{
		Use:   "pipe [TOPIC]",
		Short: "Serves a program in any language: one request per line in, one answer per line out",
		Long: `Serves a program in any language. It reads requests from standard input, one JSON
object per line. It writes the answers to standard output in the same order, one JSON
object per line.

  {"verb":"schedule","topic":"orders","id":"o-1","in":"30m","payload":"..."}
  {"verb":"reschedule","topic":"orders","id":"o-1","at":"2099-12-01T10:00:00Z"}
  {"verb":"get","topic":"orders","id":"o-1"}
  {"verb":"cancel","topic":"orders","id":"o-1"}

schedule takes the fields of a line of load, "if_absent" and "if_present". An answer
holds what the verb prints with -o json, and "line", "verb" and "code", the exit code of the verb. If
the code isn't 0, the answer holds "error" and "retry" instead; "retry" tells whether the
same request may succeed later. A bad line gets such an answer, and the pipe goes on.

Don't wait for an answer before the next request: many requests are in flight at a time.
Requests for one ID are done one after the other. At the end of the input all requests
are answered, and the exit code is 0. Ctrl-C stops reading and answers the requests
already read.`,
		Example: `  producer pipe orders < requests.ndjson > answers.ndjson`,
		Args:    cli.TopicArgument,
		RunE:    cli.Verb(func(cmd *cobra.Command, _ []string) error { return pipe(cmd, conn, topic) }),
	}
	cmd.Flags().StringVar(&topic, "topic", "", "the topic of requests that name none; the same as TOPIC")
	return cmd
}

func pipe(cmd *cobra.Command, conn *connection, topic string) error {
	if topic != "" {
		if err := task.CheckTopic(topic); err != nil {
			return err
		}
	}
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	p := piping{client: client, topic: topic, out: bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)}
	if err := p.run(cmd.Context(), cmd.InOrStdin(), conn.maxPayload); err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	return nil
}

// piping answers a stream of requests, in their order.
type piping struct {
	client *producer.Client
	topic  string
	out    *bufio.Writer // keeps its first error
}

// run answers the requests of in. It stops reading if an answer can't be written.
func (p *piping) run(ctx context.Context, in io.Reader, maxPayload int) error {
	reading, halt := context.WithCancel(ctx)
	defer halt()
	s := ndjson.Stream{
		Parse:    (&ndjson.Parser{Topic: p.topic}).Parse,
		Do:       p.do,
		Together: []string{"schedule"}, MaxPayload: maxPayload,
		Batchers: pipeBatchers, Batch: ndjson.MaxBatch, Ahead: pipeAhead,
		Finished: func(r *ndjson.Request) {
			if r.Err != nil {
				r.Answer = newRefusal(r)
			}
			if err := cli.PrintJSON(p.out, r.Answer, ""); err != nil {
				halt()
			}
		},
		// Answers are flushed as soon as the next one isn't ready.
		Idle: func() {
			if err := p.out.Flush(); err != nil {
				halt()
			}
		},
	}
	err := s.Run(reading, ndjson.Interruptible(reading, in))
	if written := p.out.Flush(); written != nil {
		return fmt.Errorf("write an answer: %w", written)
	}
	return err
}

// do does a batch: tasks to schedule together, or a single request of another verb.
func (p *piping) do(ctx context.Context, batch []*ndjson.Request) {
	if r := batch[0]; r.Verb != "schedule" {
		r.Reply(call(ctx, p.client, r))
		return
	}
	for i, result := range p.client.ScheduleMany(ctx, ndjson.Tasks(batch)) {
		batch[i].Reply(newDueOutput(batch[i], result.Due), result.Err)
	}
}

// answerHead is the beginning of every answer.
type answerHead struct {
	Line int    `json:"line"`
	Verb string `json:"verb,omitempty"`
	Code int    `json:"code"`
}

// refusal is the answer to a request that failed, or whose result is unknown.
type refusal struct {
	answerHead
	Topic string `json:"topic,omitempty"`
	ID    string `json:"id,omitempty"`
	Error string `json:"error"`
	// Retry reports that the same request may succeed later, and does no harm.
	Retry bool `json:"retry"`
}

// newRefusal returns the answer to a failed request, with the error as the verb prints it.
func newRefusal(r *ndjson.Request) refusal {
	var bad ndjson.BadLineError
	err, head := r.Err, answerHead{r.Line, r.Verb, cli.Code(r.Err)}
	if errors.As(err, &bad) {
		head.Code = cli.Usage
	}
	if head.Code != cli.Usage {
		err = fmt.Errorf("%s: %w", r.Verb, err)
	}
	known := errors.Is(err, task.ErrInvalid) || errors.Is(err, task.ErrUnknownTopic)
	return refusal{
		answerHead: head, Topic: r.Topic, ID: r.ID,
		Error: cli.OneLine(strings.TrimSpace(err.Error() + advice(err))), Retry: head.Code == cli.Failed && !known,
	}
}
