package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/producer"
)

// Batches works on several tasks in one call. *producer.Client does.
type Batches interface {
	ScheduleMany(ctx context.Context, requests []producer.Request) []producer.Result
	RescheduleMany(ctx context.Context, topic string, moves []producer.Move) []producer.Result
	CancelMany(ctx context.Context, topic string, ids []string) []error
	GetMany(ctx context.Context, topic string, ids []string) []producer.GetResult
}

const (
	// batchers is how many calls to Redis a batch has in flight, at most.
	batchers = 1 // so that each call has many tasks; other batches use Redis meanwhile
	// batchAhead is how many lines are read before the first of them is answered, at most.
	batchAhead = 1000
	// lineTimeout is how long a batch waits for bytes of the client, and for room for an
	// answer.
	lineTimeout = 30 * time.Second
	// wholeTimeout is how long a batch waits for a whole line while bytes arrive.
	wholeTimeout = time.Minute
	// batchBuffer is the size of the buffers of a batch's lines and answers, in bytes.
	batchBuffer = 64 << 10
	ndjsonType  = "application/x-ndjson"
)

// lineHead is the beginning of each line's answer.
type lineHead struct {
	Line   int    `json:"line"`
	Verb   string `json:"verb,omitempty"`
	Status int    `json:"status"`
}

// lineProblem is the answer to a line that failed.
type lineProblem struct {
	Line int    `json:"line"`
	Verb string `json:"verb,omitempty"`
	ID   string `json:"id,omitempty"`
	*Problem
}

// batch is a stream of lines, each with an answer.
type batch struct {
	h   *handler
	r   *request
	w   http.ResponseWriter
	out *bufio.Writer
	enc *json.Encoder // to out
	// printed counts the answers that have the same outcome as the last one.
	last    outcome
	printed int
	line    []byte // the answer that is being printed
	ctl     *http.ResponseController

	client atomic.Pointer[client] // whose token this is now
	halt   context.CancelFunc     // ends the reading
	// waited is how long it waited for the client's rate, less the time since then. It ended the last
	// wait at paid.
	waited time.Duration
	paid   time.Time
	unpaid atomic.Pointer[unpaid] // set once
}

// outcome is the verb of a line and the status of its answer.
type outcome struct {
	verb   string
	status int
}

// serveBatch answers a body of lines, in their order, while they still arrive. Once the
// first answer is on its way, the status is 200, and each line has a status of its own.
func (h *handler) serveBatch(w http.ResponseWriter, r *request) (status int, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != ndjsonType {
		return 0, broken(http.StatusUnsupportedMediaType, "content_type", "Content-Type", "must be "+ndjsonType)
	}
	if r.Header.Get("Content-Encoding") != "" {
		return 0, broken(http.StatusUnsupportedMediaType, "encoding", "Content-Encoding", "must not be given")
	}
	if _, err := r.query(); err != nil {
		return 0, err
	}
	most := mostOfOne
	if h.tokens == nil { // all clients then have one name
		most = mostBatches
	}
	end, err := h.batches.take(r.client.Name, most)
	if err != nil {
		return 0, err
	}
	defer end()
	ctl := http.NewResponseController(w)
	out, _ := h.writers.Get().(*bufio.Writer)
	if out == nil {
		out = bufio.NewWriterSize(nil, batchBuffer)
	}
	out.Reset(timelyWriter{w, ctl, h.pause})
	defer func() { out.Reset(nil); h.writers.Put(out) }()
	b := &batch{h: h, r: r, w: w, out: out, ctl: ctl}
	b.client.Store(r.client)
	b.enc = json.NewEncoder(b.out)
	b.enc.SetEscapeHTML(false)
	_ = b.ctl.EnableFullDuplex() // HTTP/2 needs no such call, and says so
	w.Header().Set("Content-Type", ndjsonType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	return http.StatusOK, b.run()
}

// run answers the lines until the end of the body, of the client or of the server. A line
// without an answer may have taken effect.
func (b *batch) run() error {
	_ = b.ctl.SetWriteDeadline(time.Time{}) // see flush
	reading, halt := context.WithCancel(b.r.Context())
	defer halt()
	b.halt = halt
	defer context.AfterFunc(b.h.stopping, halt)()
	// A reader that waits for the client ends with reading.
	defer context.AfterFunc(reading, func() { _ = b.ctl.SetReadDeadline(time.Now()) })()
	lines := ndjson.Parser{Topic: b.r.topic}
	var s ndjson.Stream
	s = ndjson.Stream{
		Parse: func(line []byte) (*ndjson.Request, error) {
			late := b.pay(reading)
			wanted, err := lines.Parse(line)
			switch {
			case late != nil:
				b.unpaid.Store(&unpaid{line: s.Read(), problem: late})
				b.end(late)
				return wanted, late
			case err == nil:
				err = b.refused(wanted)
			}
			return wanted, err
		},
		Do: b.do, Together: []string{"schedule", "reschedule", "cancel", "get"}, MaxPayload: b.h.maxPayload,
		Batchers: batchers, Batch: ndjson.MaxBatch, Ahead: batchAhead, Coming: b.r.ContentLength >= 0,
		Finished: func(r *ndjson.Request) {
			if err := b.print(r); err != nil {
				halt()
			}
		},
		Idle: func() {
			if err := b.flush(); err != nil {
				halt()
			}
		},
	}
	in, _ := b.h.readers.Get().(*bufio.Reader)
	if in == nil {
		in = bufio.NewReaderSize(nil, batchBuffer)
	}
	body := &timely{ctx: reading, body: b.r.Body, ctl: b.ctl, pause: b.h.pause, whole: b.h.whole}
	in.Reset(body)
	err := s.Run(reading, in)
	in.Reset(nil)
	b.h.readers.Put(in)
	if body.late {
		late := problem(http.StatusRequestTimeout, "slow",
			fmt.Sprintf("the line took more than %s, or paused for more than %s", b.h.whole, b.h.pause))
		_ = b.print(&ndjson.Request{Line: s.Read() + 1, Err: late}) // the client hung up
	}
	// The client hung up if one of these fails.
	_ = errors.Join(b.flush(), b.ctl.SetWriteDeadline(time.Now().Add(b.h.pause)))
	if err != nil {
		lastOf(b.w)
	}
	if err != nil && b.h.stopping.Err() == nil {
		b.h.log.DebugContext(b.r.Context(), "batch ended early", "client", b.r.client.Name, "error", err)
	}
	return nil
}

// refused returns why a good line can't be done over HTTP, nil if it can. A single request can't
// have these either.
func (b *batch) refused(r *ndjson.Request) error {
	switch {
	case r.Topic != b.r.topic:
		return &ndjson.FieldError{Field: "topic", Err: fmt.Errorf("must be %s, as in the path, or absent", b.r.topic)}
	case r.AMQP != nil:
		return &ndjson.FieldError{Field: "amqp",
			Err: errors.New("isn't taken over HTTP; producer load and producer pipe take it")}
	}
	return nil
}

// do does a batch of requests of one verb.
func (b *batch) do(ctx context.Context, batch []*ndjson.Request) {
	defer func() {
		if panicked := recover(); panicked != nil {
			p := b.h.defect(b.r, panicked)
			for _, r := range batch {
				if r.Answer == nil && r.Err == nil {
					r.Reply(nil, p)
				}
			}
		}
	}()
	if p := b.permit(ctx, batch[0].Verb); p != nil {
		for _, r := range batch {
			r.Reply(nil, p)
		}
		return
	}
	switch batch[0].Verb {
	case "schedule":
		b.replyDue(batch, b.h.many.ScheduleMany(ctx, ndjson.Tasks(batch)), conditional)
	case "reschedule":
		moves := make([]producer.Move, len(batch))
		for i, r := range batch {
			moves[i] = producer.Move{ID: r.ID, When: r.When}
		}
		b.replyDue(batch, b.h.many.RescheduleMany(ctx, b.r.topic, moves), func(err error) error { return err })
	case "cancel":
		for i, err := range b.h.many.CancelMany(ctx, b.r.topic, idsOf(batch)) {
			batch[i].Reply(cancelAnswer{nameOf(batch[i]), true}, err)
		}
	default:
		for i, result := range b.h.many.GetMany(ctx, b.r.topic, idsOf(batch)) {
			batch[i].Reply(taskAnswer{nameOf(batch[i]), NewView(result.Task)}, result.Err)
		}
	}
}

// replyDue replies with due times.
func (b *batch) replyDue(batch []*ndjson.Request, results []producer.Result, meaning func(error) error) {
	for i := range results {
		due, err := &results[i].Due, meaning(results[i].Err)
		batch[i].Reply(due, dueProblem(*due, err))
	}
}

func nameOf(r *ndjson.Request) nameAnswer { return nameAnswer{r.Topic, r.ID} }

func idsOf(batch []*ndjson.Request) []string {
	ids := make([]string, len(batch))
	for i, r := range batch {
		ids[i] = r.ID
	}
	return ids
}

// print writes the answer to a line.
func (b *batch) print(r *ndjson.Request) error {
	var answer any
	head := lineHead{r.Line, r.Verb, http.StatusOK}
	due, isDue := r.Answer.(*time.Time)
	if r.Err != nil {
		p := b.problem(r)
		head.Status, answer = p.Status, lineProblem{r.Line, r.Verb, r.ID, p}
	} else if !isDue {
		answer = withHead(head, r.Answer)
	}
	if o := (outcome{r.Verb, head.Status}); o != b.last {
		b.count()
		b.last = o
	}
	b.printed++
	if answer != nil {
		return b.enc.Encode(answer)
	}
	b.line = appendDue(b.line[:0], head, nameOf(r), *due)
	_, err := b.out.Write(b.line)
	return err
}

// appendDue appends the answer to a line that set a due time: a lineHead and a dueAnswer.
// Most answers are such, and encoding/json takes several times as long.
func appendDue(b []byte, head lineHead, name nameAnswer, due time.Time) []byte {
	b = strconv.AppendInt(append(b, `{"line":`...), int64(head.Line), 10)
	b = append(append(append(b, `,"verb":"`...), head.Verb...), `","status":`...)
	b = strconv.AppendInt(b, int64(head.Status), 10)
	b, _ = jsontext.AppendQuote(append(b, `,"topic":`...), name.Topic)
	b, _ = jsontext.AppendQuote(append(b, `,"id":`...), name.ID)
	b = due.UTC().AppendFormat(append(b, `,"due":"`...), duetime.Format)
	b = strconv.AppendInt(append(b, `","due_ms":`...), due.UnixMilli(), 10)
	return append(b, "}\n"...)
}

// problem returns why a line failed. It logs a failure of the server.
func (b *batch) problem(r *ndjson.Request) *Problem {
	if last := b.unpaid.Load(); last != nil && last.line == r.Line {
		return last.problem
	}
	if bad, is := errors.AsType[ndjson.BadLineError](r.Err); is {
		p := problem(http.StatusBadRequest, "bad_request", bad.Error())
		p.Field, p.Rule, p.Got = bad.Field, bad.Rule, bad.Got
		return p
	}
	p := problemOf(r.Err)
	if p.cause != nil && p.Status >= http.StatusInternalServerError {
		b.h.failed.Log(context.WithoutCancel(b.r.Context()), "client", b.r.client.Name, "verb", r.Verb, "topic", r.Topic,
			"id", r.ID, "status", p.Status, "code", p.Code, "error", p.cause)
	}
	return p
}

// withHead returns the answer of a verb behind the head of its line.
func withHead(head lineHead, answer any) any {
	switch answer := answer.(type) {
	case cancelAnswer:
		return struct {
			lineHead
			cancelAnswer
		}{head, answer}
	case taskAnswer:
		return struct {
			lineHead
			taskAnswer
		}{head, answer}
	}
	return answer // there are no others
}

// count counts the answers that were printed.
func (b *batch) count() {
	if b.printed > 0 {
		b.h.lines.WithLabelValues(b.r.client.Name, b.last.verb, strconv.Itoa(b.last.status)).Add(float64(b.printed))
	}
	b.printed = 0
}

// flush sends the answers that were printed, and counts them. With HTTP/2 a deadline ends the
// request even if nobody writes, so none is left.
func (b *batch) flush() error {
	if b.printed == 0 {
		return nil
	}
	b.count()
	if err := errors.Join(b.out.Flush(), b.ctl.Flush()); err != nil {
		return err
	}
	return b.ctl.SetWriteDeadline(time.Time{})
}
