package shard

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/task"
)

// HeaderNext is a header that package consumer gives a task that it stores after a
// delivery. Its value is "1", or "1 <first due> <due> <attempts>" where the task was due
// before: two times in Unix ms, and the attempts until it was stored. Without a fourth
// part they are 0. It is none of the reserved headers: scanners refuse to deliver those
// that they don't know, and this one they pass on.
const HeaderNext = "duefleet-next"

// Next is the content of HeaderNext.
type Next struct {
	FirstDue time.Time // when the task was due first
	Attempts int       // until its consumer stored it
}

// NextMark returns the value of HeaderNext. The task was first due at first and is stored
// to be due at due, both in ms. attempts counts the ones before.
func NextMark(first, due int64, attempts int) string {
	switch {
	case first == due:
		return "1"
	case attempts == 0:
		return fmt.Sprintf("1 %d %d", first, due)
	}
	return fmt.Sprintf("1 %d %d %d", first, due, attempts)
}

// ReadNext reads the value of HeaderNext of a task that is due at due. A value without
// times gives due. A value is valid only for the due time that it names: a reschedule
// changes the due time and keeps the headers.
func ReadNext(mark string, due time.Time) Next {
	next, parts := Next{FirstDue: due}, strings.Split(mark, " ")
	if len(parts) < 3 || len(parts) > 4 || parts[2] != strconv.FormatInt(due.UnixMilli(), 10) {
		return next
	}
	first, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return next
	}
	next.FirstDue = time.UnixMilli(first).UTC()
	if len(parts) > 3 {
		next.Attempts, _ = strconv.Atoi(parts[3])
	}
	return next
}

// HideNext removes HeaderNext from a task that is shown to an application.
func HideNext(t *task.Task) {
	if t.AMQP != nil {
		delete(t.AMQP.Headers, HeaderNext)
	}
	delete(t.Headers, HeaderNext)
	if len(t.Headers) == 0 {
		t.Headers = nil
	}
}
