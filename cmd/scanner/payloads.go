package main

import (
	"context"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/shard"
)

// payloadFlag adds the payloads to a list.
type payloadFlag bool

func (p *payloadFlag) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar((*bool)(p), "payload", false,
		"with the payloads, in JSON: payload, or payload_base64 if it is no text")
}

// check refuses the flag for a table, which has no room.
func (p payloadFlag) check(format cli.Format) error {
	if bool(p) && format == cli.Table {
		return cli.UsageError("--payload needs -o json or -o ndjson")
	}
	return nil
}

// payload is a task's payload in JSON. Both are absent if the task is gone or can't be read.
type payload struct {
	Text  *string `json:"payload,omitempty"`
	Bytes []byte  `json:"payload_base64,omitempty"`
}

func newPayload(data []byte, there bool) (p payload) {
	text := string(data)
	switch {
	case there && utf8.ValidString(text):
		p.Text = &text
	case there:
		p.Bytes = data
	}
	return p
}

// withPayload is a listed task and its payload.
type withPayload[T any] struct {
	listed T
	payload
}

// withPayloads adds the payloads to a list. of returns topic and ID of a listed task.
func withPayloads[T any](ctx context.Context, store *shard.Store, all each[T],
	of func(T) (topic, id string)) each[withPayload[T]] {
	return func(yield func(withPayload[T]) bool) error {
		var page []T
		more := true
		flush := func() error {
			if len(page) == 0 || !more {
				return nil
			}
			topic, _ := of(page[0])
			ids := make([]string, len(page))
			for i, one := range page {
				_, ids[i] = of(one)
			}
			payloads, err := bulk.Payloads(ctx, store.Topic(topic), ids)
			if err != nil {
				return err
			}
			for i, one := range page {
				data, there := payloads[ids[i]]
				if more = more && yield(withPayload[T]{one, newPayload(data, there)}); !more {
					break
				}
			}
			page = nil
			return nil
		}
		var failed error
		err := all(func(one T) bool {
			topic, _ := of(one)
			if len(page) == bulk.MostPayloads {
				failed = flush()
			} else if len(page) > 0 {
				if before, _ := of(page[0]); before != topic {
					failed = flush()
				}
			}
			page = append(page, one)
			return more && failed == nil
		})
		if failed != nil {
			return failed
		}
		if end := flush(); end != nil {
			return end
		}
		return err
	}
}
