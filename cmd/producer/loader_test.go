package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// recorder takes the writes of a loader, each after the time that delay returns, and
// records them. A payload is the number of its line.
type recorder struct {
	delay func() time.Duration
	// fail, if set, selects lines whose write fails.
	fail func(line int) error
	// written, if set, is called for every written line.
	written chan<- int

	mu       sync.Mutex
	lines    map[string][]int // by ID, in the order they were written
	at       map[int]time.Time
	bad      []int
	inFlight int
	highest  int
	largest  int
}

func (r *recorder) write(ctx context.Context, requests []producer.Request) []producer.Result {
	r.mu.Lock()
	r.inFlight++
	r.highest, r.largest = max(r.highest, r.inFlight), max(r.largest, len(requests))
	r.mu.Unlock()
	retry.Sleep(ctx, r.delay())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
	results := make([]producer.Result, len(requests))
	for i, req := range requests {
		line, _ := strconv.Atoi(string(req.Payload))
		if r.fail != nil {
			if results[i].Err = r.fail(line); results[i].Err != nil {
				continue
			}
		}
		r.lines[req.ID] = append(r.lines[req.ID], line)
		r.at[line] = time.Now()
		if r.written != nil {
			r.written <- line
		}
	}
	return results
}

func newRecorder(delay func() time.Duration) *recorder {
	return &recorder{delay: delay, lines: map[string][]int{}, at: map[int]time.Time{}}
}

func (r *recorder) loader(batch int, strict bool) *loader {
	return &loader{
		decoder:  ndjson.Decoder{Topic: "orders", MaxPayload: 1 << 20, Now: time.Now},
		batch:    batch,
		strict:   strict,
		write:    r.write,
		bad:      func(line int, _ error) { r.bad = append(r.bad, line) },
		progress: func(int) {},
	}
}

func upTo(d time.Duration) func() time.Duration {
	return func() time.Duration { return rand.N(d) + 1 }
}

// numbered returns n lines for some IDs, each with its number as payload.
func numbered(n, ids int) string {
	var text strings.Builder
	for line := 1; line <= n; line++ {
		fmt.Fprintf(&text, `{"id":"o-%d","in":"1m","payload":"%d"}`+"\n", rand.IntN(ids), line)
	}
	return text.String()
}

// TestLoaderKeepsTheOrderOfAnID: the lines of one ID are written one after the other, even
// if batches in flight overtake each other.
func TestLoaderKeepsTheOrderOfAnID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lines, batch = 5000, 50
		r := newRecorder(upTo(20 * time.Millisecond))
		sum, err := r.loader(batch, false).load(t.Context(), strings.NewReader(numbered(lines, 300)))
		if err != nil || sum.Scheduled != lines || sum.Lines != lines || sum.SafeLine != lines {
			t.Fatalf("%+v, %v", sum, err)
		}
		total := 0
		for id, order := range r.lines {
			total += len(order)
			if !slices.IsSorted(order) {
				t.Errorf("%s was written in the order %v", id, order)
			}
		}
		if total != lines || r.highest != loadBatchers || r.largest != batch {
			t.Errorf("%d lines, at most %d batches at once, of at most %d", total, r.highest, r.largest)
		}
	})
}

// TestLoaderDoesNotWaitForAFullBatch: a line from a pipe is written within 50 ms, whether
// others follow or not.
func TestLoaderDoesNotWaitForAFullBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lines = 100
		out, in := io.Pipe()
		written := make(chan int, lines)
		r := newRecorder(upTo(time.Millisecond))
		r.written = written
		brought := map[int]time.Time{}
		go func() {
			for line := 1; line <= lines; line++ {
				brought[line] = time.Now()
				fmt.Fprintf(in, `{"id":"o-%d","in":"1m","payload":"%d"}`+"\n", line, line)
				retry.Sleep(t.Context(), rand.N(30*time.Millisecond))
			}
			for range lines { // the end of the input would have them written, too
				<-written
			}
			in.Close()
		}()
		if _, err := r.loader(500, false).load(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		for line, at := range brought {
			if waited := r.at[line].Sub(at); waited < 0 || waited > 50*time.Millisecond {
				t.Errorf("line %d was written after %v", line, waited)
			}
		}
	})
}

// TestLoaderSafeLine: when Redis goes away, every line up to the one reported
// is written, and the counts add up.
func TestLoaderSafeLine(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			const lines = 2000
			r := newRecorder(upTo(5 * time.Millisecond))
			gone := errors.New("gone")
			from := 1 + rand.IntN(lines)
			r.fail = func(line int) error {
				if line >= from && rand.IntN(3) > 0 {
					return gone
				}
				return nil
			}
			sum, err := r.loader(20, false).load(t.Context(), strings.NewReader(numbered(lines, 1000)))
			if from < lines-10 && !errors.Is(err, gone) {
				t.Fatalf("failing from line %d on: %v", from, err)
			}
			for line := 1; line <= sum.SafeLine; line++ {
				if r.at[line].IsZero() {
					t.Fatalf("line %d is not in, and %d is said to be safe", line, sum.SafeLine)
				}
			}
			if sum.SafeLine < from-1 && sum.SafeLine < from-loadBatchers*(20+20) {
				t.Errorf("failing from line %d on, safe up to %d only", from, sum.SafeLine)
			}
			if int(sum.Scheduled) != len(r.at) || sum.Lines != sum.Scheduled+sum.Unwritten {
				t.Errorf("%d lines are in: %+v", len(r.at), sum)
			}
		})
	}
}

// TestSummarySaysWhatIsIn: the summary of a stopped load names a line only if lines are
// written.
func TestSummarySaysWhatIsIn(t *testing.T) {
	t.Parallel()
	for want, sum := range map[string]summary{
		"nothing is in":             {Bad: 2, SafeLine: 3},
		"nothing is known to be in": {Bad: 2, Unwritten: 4, SafeLine: 3},
		"4 of 8 lines are in, but line 1 is not known to be": {Lines: 8, Scheduled: 3, Existing: 1, Unwritten: 4},
		"every good line up to line 3 is in":                 {Existing: 2, Unwritten: 4, SafeLine: 3},
		"every good line up to line 50 is in":                {Scheduled: 50, SafeLine: 50},
	} {
		if got := sum.in(); got != want {
			t.Errorf("%+v: %s, want %s", sum, got, want)
		}
	}
}

// TestLoaderStrict: every line before the first bad one is written, and none
// after it.
func TestLoaderStrict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(upTo(20 * time.Millisecond))
		text := numbered(777, 300) + "nonsense\n" + strings.ReplaceAll(numbered(777, 300), `"payload":"`, `"payload":"9`)
		sum, err := r.loader(50, true).load(t.Context(), strings.NewReader(text))
		if err == nil || sum.Scheduled != 777 || sum.Bad != 1 || sum.Lines != 778 || sum.Unwritten != 0 {
			t.Errorf("%+v, %v", sum, err)
		}
		for line := range r.at {
			if line > 777 {
				t.Errorf("line %d is written", line)
			}
		}
	})
}

// TestLoaderCounts: lines are counted by the result of their writes, and bad lines are
// reported in their order.
func TestLoaderCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(upTo(time.Millisecond))
		r.fail = func(line int) error {
			switch line % 10 {
			case 0:
				return fmt.Errorf("topic orders: %w", task.ErrExists)
			case 5:
				return &task.RuleError{Field: "due", Rule: "must be earlier", Got: "later"}
			}
			return nil
		}
		sum, err := r.loader(7, false).load(t.Context(), strings.NewReader("\n"+numbered(100, 100)+"  \t\r\n"))
		if err == nil || sum.Lines != 100 || sum.Scheduled != 80 || sum.Existing != 10 || sum.Bad != 10 ||
			sum.SafeLine != 102 {
			t.Errorf("%+v, %v", sum, err)
		}
		if len(r.bad) != 10 || !slices.IsSorted(r.bad) {
			t.Errorf("told of the bad lines %v", r.bad)
		}
	})
}

// TestLoaderInterrupted: the loader ends even if the reader blocks forever, and it writes
// the lines that arrived before.
func TestLoaderInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, in := io.Pipe()
		defer in.Close()
		ctx, interrupt := context.WithCancel(t.Context())
		r := newRecorder(upTo(20 * time.Millisecond))
		go func() {
			_, _ = io.WriteString(in, numbered(3, 3)+`{"id":"half`)
			synctest.Wait() // until the loader has read all lines
			interrupt()
		}()
		sum, err := r.loader(500, false).load(ctx, out)
		if !errors.Is(err, ndjson.ErrInterrupted) || sum.Scheduled != 3 || sum.SafeLine != 3 || len(r.at) != 3 {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}
