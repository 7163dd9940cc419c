package ndjson

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// lanes returns a stream with one batcher, and the channel of its batches.
func lanes() (*Stream, <-chan []*Request) {
	batches := make(chan []*Request, 1000)
	return &Stream{
		Parse: (&Parser{Topic: "orders"}).Parse,
		Do: func(_ context.Context, batch []*Request) {
			for _, r := range batch {
				r.Reply(r.ID, nil)
			}
			batches <- batch
		},
		Finished: func(*Request) {}, Idle: func() {}, MaxPayload: 1000,
		Together: []string{"schedule", "cancel"}, Batchers: 1, Batch: 50, Ahead: 100,
	}, batches
}

// TestLinesThatArriveTogetherAreSentTogether, up to the limit of a batch, and each verb for
// itself.
func TestLinesThatArriveTogetherAreSentTogether(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, `{"verb":"schedule","id":"s-%d","in":"1h"}`+"\n", i)
	}
	for i := range 20 {
		fmt.Fprintf(&lines, `{"verb":"cancel","id":"s-%d"}`+"\n", i)
	}
	for range 2 {
		lines.WriteString(`{"verb":"get","id":"s-1"}` + "\n")
	}
	s, batches := lanes()
	check.OK(t, s.Run(t.Context(), strings.NewReader(lines.String())))
	var sizes []int
	for len(batches) > 0 {
		sizes = append(sizes, len(<-batches))
	}
	if want := []int{50, 10, 20, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %d, want %d", sizes, want)
	}
}

// TestLinesOnTheirWayAreSentTogether: if the whole input is coming, lines wait for the next ones,
// and not for long.
func TestLinesOnTheirWayAreSentTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, batches := lanes()
		s.Coming = true
		out, in := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context(), out) }()
		write := func(id string, pause time.Duration) {
			_, err := fmt.Fprintf(in, `{"verb":"schedule","id":%q,"in":"1h"}`+"\n", id)
			check.OK(t, err)
			<-time.After(pause)
		}
		write("a", gatherTime/2)
		write("b", gatherTime)
		write("c", 0)
		check.OK(t, in.Close())
		check.OK(t, <-ended)
		check.Equal(t, "first batch", len(<-batches), 2)
		check.Equal(t, "second batch", len(<-batches), 1)
	})
}

// TestNoLineWaitsForTheNext: a client may wait for its answer before it sends more.
func TestNoLineWaitsForTheNext(t *testing.T) {
	t.Parallel()
	s, batches := lanes()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context(), out) }()
	for i := range 3 {
		_, err := fmt.Fprintf(in, `{"verb":"schedule","id":"s-%d","in":"1h"}`+"\n"+`{"verb":"sch`, i)
		check.OK(t, err)
		batch := check.Receive(t, "a batch", batches)
		check.Equal(t, "ID", batch[0].ID, fmt.Sprint("s-", i))
		_, err = io.WriteString(in, `edule","id":"rest","in":"1h"}`+"\n")
		check.OK(t, err)
		check.Receive(t, "the rest", batches)
	}
	check.OK(t, in.Close())
	check.OK(t, check.Receive(t, "the end", ended))
}
