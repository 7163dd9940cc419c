package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/operate"
)

// verdictPatience is how long scanners are waited for to say what they make of a
// document. They say so each second; one that was killed counts for three.
const verdictPatience = 6 * time.Second

// verdict is whether and how a verb tells what scanners make of what it wrote.
type verdict struct {
	skip    bool
	pausing bool // a topic that can't be delivered is no failure then
	// until is when patience is over; zero: verdictPatience from when it is asked for.
	until time.Time
}

func (v *verdict) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&v.skip, "no-wait", false, "end when it is written; don't ask what scanners make of it")
}

// await waits until all living scanners have applied a document, for verdictPatience at
// most, and prints what they say. It fails if one of them refuses the document, or can't
// deliver the topic by it. Those that can't be asked, or don't say in time, are told on
// standard error, and are no failure: the document is written, and they will read it.
func (v verdict) await(cmd *cobra.Command, s *settings, doc config.Document) error {
	if v.skip {
		return nil
	}
	found, err := v.ask(cmd.Context(), s, doc)
	switch {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("topic %s: interrupted before scanners said what they make of it; it is written", doc.Name)
	case err != nil:
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s: written; what scanners make of it can't be told: %v\n", doc.Name, err)
		return err
	case len(found.Refused) > 0 || len(found.Blocked) > 0 && !v.pausing:
		return fmt.Errorf("topic %s: %s", doc.Name, found.Text())
	case !found.Final():
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s: %s; see `scanner status --topic %s`\n", doc.Name, found.Text(), doc.Name)
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s: %s\n", doc.Name, found.Text())
	return err
}

// ask reads verdicts until one is final or patience is over, and returns the last.
func (v verdict) ask(ctx context.Context, s *settings, doc config.Document) (operate.Verdict, error) {
	rdb, store, err := s.open()
	if err != nil {
		return operate.Verdict{}, err
	}
	defer rdb.Close()
	patience := verdictPatience
	if !v.until.IsZero() {
		patience = time.Until(v.until)
	}
	over := time.After(patience)
	ctx, cancel := context.WithTimeout(ctx, verdictPatience)
	defer cancel()
	var last operate.Verdict
	for asked := false; ; asked = true {
		members, err := balance.Members(ctx, store)
		if err != nil {
			if asked && errors.Is(err, context.DeadlineExceeded) {
				return last, nil
			}
			return last, err
		}
		if last = operate.ReadVerdict(members, doc.Name, doc.Index); last.Final() {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, nil
		case <-over:
			return last, nil
		case <-time.After(waitBeat):
		}
	}
}
