package shard

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/task"
)

// opSize is the length of an Op, in bytes.
const opSize = 6

// Op numbers one call of a caller's, so that a script that is executed twice
// knows its own work.
type Op string

// NewOp returns a number that nobody else has: 6 random bytes. A script compares it only
// with the op of the record to replace. So the probability of a collision is 2^-48 for
// each replacement.
func NewOp() Op {
	b := make([]byte, opSize)
	_, _ = rand.Read(b) // never fails: crypto/rand
	return Op(b)
}

// A record is a task as a shard stores it, with big-endian integers. Format 2 is for
// messages that came through an intake. Format 3 is for recurring tasks, and format 4 for tasks
// in a group; both have a body of another format.
//
//	offset  bytes
//	0       1      16 x format (1 to 4) + flags: 1 redelivered, 2 exported, 4 noted, 8 attempted
//	1       6      due, Redis ms
//	7       6      scheduled, Redis ms
//	13      6      op: the number of the call that wrote it
//	19      2      if attempted: attempts that the broker returned or refused
//	        8      if exported: score from before, IEEE 754
//	        2+n    if noted: reason of the last release, and when that was, Redis ms, as in
//	               "why @1796119300456" (records of before have the reason alone)
//	        rest   in format 4: the group (see withGroup), and a body of another format;
//	               in format 3: the rule (see withRule), and a body of format 1 or 2;
//	               in format 2: what package amqpmsg encodes; in format 1:
//	        1      0: payload alone; else, before it,
//	        1+n    content type; n = 0: application/octet-stream
//	        1      headers, and for each 1+n key, 2+n value, in the order of the keys;
//	               those that begin with x-duefleet- are options of the message
//	        rest   payload
//
// The part after the note is the body, which callers write and scripts pass on unread.
const (
	recordFormat = 1
	amqpFormat   = 2
	recordHead   = 19
	formatUnit   = 16

	flagRedelivered = 1
	flagExported    = 2
	flagNoted       = 4
	flagAttempted   = 8
)

// Encode packs what a producer decides of a task: its group, its rule if
// it recurs, and its message. They
// must have passed their rules. The error is about AMQP.
func Encode(t *task.Task) (body []byte, err error) {
	if t.AMQP == nil {
		body = EncodeBody(t)
	} else if body, err = encodeAMQP(t); err != nil {
		return nil, err
	}
	if t.Recurrence != nil {
		body = withRule(t.Recurrence, body)
	}
	if t.Group != "" {
		body = withGroup(t.Group, body)
	}
	return body, nil
}

// EncodeBody packs content type, headers, options and payload, which must have passed the
// rules of package task.
func EncodeBody(t *task.Task) []byte {
	headers := t.Headers
	if t.Options != (task.Options{}) || t.Series != "" {
		headers = withOptions(headers, t.Options, t.Series)
	}
	size := 3 + len(t.ContentType) + len(t.Payload)
	for k, v := range headers {
		size += 3 + len(k) + len(v)
	}
	b := make([]byte, 0, size)
	contentType := t.ContentType
	if contentType == task.DefaultContentType {
		contentType = ""
	}
	if contentType == "" && len(headers) == 0 {
		return append(append(b, 0), t.Payload...)
	}
	b = append(b, 1, byte(len(contentType)))
	b = append(b, contentType...)
	b = append(b, byte(len(headers)))
	if len(headers) > 0 {
		b = appendHeaders(b, headers)
	}
	return append(b, t.Payload...)
}

func appendHeaders(b []byte, headers map[string]string) []byte {
	keys := make([]string, 0, len(headers))
	for k := range headers {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		v := headers[k]
		b = append(b, byte(len(k)))
		b = append(b, k...)
		b = binary.BigEndian.AppendUint16(b, uint16(len(v)))
		b = append(b, v...)
	}
	return b
}

// Record is a stored task with what only the store knows of it.
type Record struct {
	task.Task
	// Op is the number of the call that wrote this version.
	Op string
	// Reason of the last release, "" if there was none.
	Reason string
	// ReasonAt is when that was, and of a parked task when it was parked, by Redis's
	// clock; zero if nobody knows.
	ReasonAt time.Time
	// PayloadBytes is the length of the payload of a parked task, which is listed without
	// it.
	PayloadBytes int
	// Err is why a listed record can't be read; nil if it can.
	Err error
	raw string
	// exported: a mover has it, and prior is its score from before.
	exported bool
	prior    float64
	before   int  // attempts until a consumer stored it
	mark     Mark // of its member in the index of groups
}

// next sets what a value of HeaderNext says.
func (r *Record) next(mark string) {
	n := ReadNext(mark, r.Due)
	r.FirstDue = n.FirstDue
	if n.Attempts < r.Attempt { // a replay counts from 1 again
		r.before = n.Attempts
	}
}

// FormatError says that a record is of a format this version doesn't read:
// most likely a newer duefleet wrote it.
type FormatError struct{ Format byte }

func (e *FormatError) Error() string {
	return fmt.Sprintf("record format %d is not known to this version (it reads %d to %d); upgrade it", e.Format,
		recordFormat, groupFormat)
}

// DecodeRecord unpacks a record; topic and id are where it was found.
func DecodeRecord(topic, id string, record string) (Record, error) {
	r := Record{Task: task.Task{Topic: topic, ID: id}, raw: record}
	in, err := decodeHead(&r)
	if err != nil {
		return r, err
	}
	format := record[0] / formatUnit
	if format == groupFormat {
		decodeGroup(in, &r)
		format = in.format()
	}
	if format == recurringFormat {
		r.Recurrence = decodeRecurrence(in)
		format = in.format()
	}
	if format == amqpFormat {
		return r, decodeAMQP(in, &r)
	}
	decodeBody(in, &r.Task)
	if err := in.cut(); err != nil {
		return r, err
	}
	r.next(r.Headers[HeaderNext])
	if series, there := r.Headers[task.HeaderSeries]; there {
		r.Series = series
		delete(r.Headers, task.HeaderSeries)
	}
	return r, takeOptions(&r.Task)
}

// decodeWithoutPayload unpacks a record without its payload of left bytes.
func decodeWithoutPayload(topic, id, record string, left int) (Record, error) {
	r, err := DecodeRecord(topic, id, record)
	if r.Payload != nil {
		r.PayloadBytes = len(r.Payload) + left
		r.Payload = nil
	}
	return r, err
}

// DecodeHead unpacks a record up to its body, and the group of format 4. FirstDue stays zero,
// because it stands in the body.
func DecodeHead(topic, id string, record string) (Record, error) {
	r := Record{Task: task.Task{Topic: topic, ID: id}, raw: record}
	in, err := decodeHead(&r)
	if err == nil && record[0]/formatUnit == groupFormat {
		decodeGroup(in, &r)
	}
	if err == nil {
		err = in.cut()
	}
	return r, err
}

// decodeHead returns the reader in front of the body.
func decodeHead(r *Record) (*reader, error) {
	record := r.raw
	if len(record) > 0 {
		if f := record[0] / formatUnit; f < recordFormat || f > groupFormat {
			return nil, &FormatError{f}
		}
	}
	in := &reader{text: record, at: recordHead}
	if in.short = len(record) < recordHead; in.short {
		return nil, in.cut()
	}
	flags := record[0] % formatUnit
	r.Redelivered = flags&flagRedelivered != 0
	r.Attempt = 1
	r.Due = time.UnixMilli(uint48(record[1:7])).UTC()
	r.Scheduled = time.UnixMilli(uint48(record[7:13])).UTC()
	r.Op = record[13:19]
	if flags&flagAttempted != 0 {
		r.Attempt += in.length(2)
	}
	if r.exported = flags&flagExported != 0; r.exported {
		r.prior = in.float()
	}
	if flags&flagNoted != 0 {
		r.Reason, r.ReasonAt = splitNote(in.nextText(in.length(2)))
	}
	return in, nil
}

// noteStamp is how many bytes of a note are the time behind its text.
const noteStamp = len(" @") + noteDigits

// noteDigits are enough up to the year 2286.
const noteDigits = 13

// splitNote parts the text of a note from its time; zero: it has none.
func splitNote(note string) (string, time.Time) {
	at := len(note) - noteStamp
	if at < 0 || note[at:at+2] != " @" || strings.Trim(note[at+2:], "0123456789") != "" {
		return note, time.Time{}
	}
	ms, err := strconv.ParseInt(note[at+2:], 10, 64)
	if err != nil {
		return note, time.Time{}
	}
	return note[:at], time.UnixMilli(ms).UTC()
}

func decodeBody(in *reader, t *task.Task) {
	if in.length(1) > 0 {
		t.ContentType = in.textToKeep(in.length(1))
		if n := in.length(1); n > 0 {
			t.Headers = make(map[string]string, n)
			for range n {
				key := in.textToKeep(in.length(1))
				t.Headers[key] = in.textToKeep(in.length(2))
			}
		}
	}
	if t.ContentType == "" {
		t.ContentType = task.DefaultContentType
	}
	if !in.short {
		t.Payload = []byte(in.text[in.at:])
	}
}

// largeRecord is the size in bytes above which the content type and headers are copied, so
// that they don't keep the whole record in memory.
const largeRecord = 4 << 10

// textToKeep returns a text of the record, for the task.
func (r *reader) textToKeep(n int) string {
	if len(r.text) < largeRecord {
		return r.nextText(n)
	}
	return strings.Clone(r.nextText(n))
}

// reader walks through a record; short is set once it was asked for more than
// there is.
type reader struct {
	text  string
	at    int
	short bool
}

func (r *reader) nextText(n int) string {
	if r.short || n > len(r.text)-r.at {
		r.short = true
		return ""
	}
	s := r.text[r.at : r.at+n]
	r.at += n
	return s
}

func (r *reader) length(bytes int) int {
	n := 0
	for _, c := range []byte(r.nextText(bytes)) {
		n = n<<8 + int(c)
	}
	return n
}

// format returns the format of the body that follows.
func (r *reader) format() byte {
	if r.at < len(r.text) && r.text[r.at] > recordFormat {
		return r.text[r.at]
	}
	return recordFormat
}

// float reads an IEEE 754 double; 0 where the record ends.
func (r *reader) float() float64 {
	text := r.nextText(8)
	if r.short {
		return 0
	}
	return math.Float64frombits(binary.BigEndian.Uint64([]byte(text)))
}

// cut is the error of a record that ends too early; nil if it doesn't.
func (r *reader) cut() error {
	if !r.short {
		return nil
	}
	return fmt.Errorf("record of %d bytes is cut short", len(r.text))
}

func uint48(s string) int64 {
	var n int64
	for _, c := range []byte(s) {
		n = n<<8 + int64(c)
	}
	return n
}

// stateOf reads a score.
func stateOf(score float64) task.State {
	switch {
	case score < 0:
		return task.Leased
	case math.IsInf(score, 1):
		return task.Parked
	}
	return task.Waiting
}

// The options of a message stand among the headers of a body, under keys that no
// producer may give a header.
const (
	optionRoutingKey    = task.HeaderRoutingKey
	optionPriority      = task.ReservedHeaderPrefix + "priority"   // 1 to 255, decimal
	optionExpiration    = task.ReservedHeaderPrefix + "expiration" // ms, decimal
	optionCorrelationID = task.ReservedHeaderPrefix + "correlation-id"
	optionReplyTo       = task.ReservedHeaderPrefix + "reply-to"
)

// withOptions returns headers with those that stand for options and for the series.
func withOptions(headers map[string]string, o task.Options, series string) map[string]string {
	all := maps.Clone(headers)
	if all == nil {
		all = map[string]string{}
	}
	set := func(key, value string) {
		if value != "" {
			all[key] = value
		}
	}
	set(task.HeaderSeries, series)
	set(optionRoutingKey, o.RoutingKey)
	set(optionCorrelationID, o.CorrelationID)
	set(optionReplyTo, o.ReplyTo)
	if o.Priority > 0 {
		all[optionPriority] = strconv.Itoa(int(o.Priority))
	}
	if o.Expiration > 0 {
		all[optionExpiration] = strconv.FormatInt(o.Expiration.Milliseconds(), 10)
	}
	return all
}

// takeOptions turns the headers of options into options. An option that this version
// doesn't know, or that is out of range, is an error: the producer asked for another message.
func takeOptions(t *task.Task) error {
	for key, value := range t.Headers {
		if !strings.HasPrefix(key, task.ReservedHeaderPrefix) {
			continue
		}
		if err := setOption(&t.Options, key, value); err != nil {
			return fmt.Errorf("option %s: %w", key, err)
		}
		delete(t.Headers, key)
	}
	if len(t.Headers) == 0 {
		t.Headers = nil
	}
	if t.Options == (task.Options{}) {
		return nil
	}
	if err := task.CheckOptions(t.Options); err != nil {
		return fmt.Errorf("option: %w", err)
	}
	return nil
}

func setOption(o *task.Options, key, value string) error {
	switch key {
	case optionRoutingKey:
		o.RoutingKey = value
	case optionCorrelationID:
		o.CorrelationID = value
	case optionReplyTo:
		o.ReplyTo = value
	case optionPriority:
		n, err := strconv.ParseUint(value, 10, 8)
		o.Priority = uint8(n)
		return err
	case optionExpiration:
		ms, err := strconv.ParseUint(value, 10, 32)
		o.Expiration = time.Duration(ms) * time.Millisecond //nolint:gosec // of 32 bits
		return err
	default:
		return errors.New("not known to this version; upgrade it")
	}
	return nil
}
