package shard

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/task"
)

// HeaderNext is a header that package consumer gives a task that it stores after a
// delivery. Its value is "1", or "1 <first due> <due>" with two times in Unix ms where the
// task was due before. It is none of the reserved headers: scanners refuse to deliver
// those that they don't know, and this one they pass on.
const HeaderNext = "duefleet-next"

// NextMark returns the value of HeaderNext for a task that was first due at first and is
// stored to be due at due, in ms.
func NextMark(first, due int64) string {
	if first == due {
		return "1"
	}
	return fmt.Sprintf("1 %d %d", first, due)
}

// FirstDue returns when a task was due first, from the value of HeaderNext and the task's
// due time. It returns due if the mark has no first due time. A mark is valid only for the
// due time that it names: a reschedule changes the due time and keeps the headers.
func FirstDue(mark string, due time.Time) time.Time {
	parts := strings.Split(mark, " ")
	if len(parts) != 3 || parts[2] != strconv.FormatInt(due.UnixMilli(), 10) {
		return due
	}
	first, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return due
	}
	return time.UnixMilli(first).UTC()
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
