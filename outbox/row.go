package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// maxBatchBytes limits the payloads of one batch in memory, except for the last row.
const maxBatchBytes = 16 << 20

// row is one row that the relay has locked.
type row struct {
	seq     int64
	action  string
	request producer.Request
	err     error // the result: nil if Redis has the row
}

// take locks the next rows, at most n, none of them of the topics that wait. An error in a
// row's values is the row's.
func (s statements) take(ctx context.Context, tx *sql.Tx, outbox string, n int, waiting string) (taken []row,
	err error) {
	rows, err := tx.QueryContext(ctx, s.takeRows, waiting, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for size := 0; size < maxBatchBytes && rows.Next(); {
		r, err := scan(rows, outbox)
		if err != nil {
			return nil, err
		}
		size += len(r.request.Payload)
		taken = append(taken, r)
	}
	return taken, cmp.Or(rows.Err(), rows.Close())
}

func scan(rows *sql.Rows, outbox string) (r row, err error) {
	var (
		due, delay           sql.NullInt64
		waited, priority, ms int64
		headers              string
	)
	q := &r.request
	o := &q.Options
	err = rows.Scan(&r.seq, &r.action, &q.Topic, &q.ID, &due, &delay, &waited, &q.IfAbsent, &q.IfPresent, &q.Payload,
		&q.ContentType, &headers, &o.RoutingKey, &priority, &ms, &o.CorrelationID, &o.ReplyTo)
	if err != nil {
		return r, err
	}
	r.err = cmp.Or(
		between("priority", priority, 255),
		between("expiration_ms", ms, task.MaxExpiration.Milliseconds()),
		between("delay_ms", delay.Int64, task.MaxAhead.Milliseconds()),
	)
	if json.Unmarshal([]byte(headers), &q.Headers) != nil {
		broken := &task.RuleError{Field: "headers", Rule: "must be a JSON object of strings", Got: "other JSON"}
		r.err = cmp.Or(r.err, error(broken))
	}
	o.Priority, o.Expiration = uint8(priority), time.Duration(ms)*time.Millisecond //nolint:gosec // checked above
	q.When = when(due, delay, waited)
	if r.action == "schedule" {
		r.request = *marked(r.request, rowName(outbox, r.seq))
	}
	return r, nil
}

// when returns the due time of a row that waited in the table for some ms.
func when(due, delay sql.NullInt64, waited int64) producer.When {
	switch {
	case due.Valid:
		return producer.At(time.UnixMilli(due.Int64))
	case !delay.Valid:
		return producer.When{} // of a cancel
	}
	// The clock of the database may have been set back in between.
	if left := delay.Int64 - max(waited, 0); left > 0 {
		return producer.In(time.Duration(left) * time.Millisecond)
	}
	return producer.Now()
}

func between(column string, value, most int64) error {
	if value < 0 || value > most {
		return &task.RuleError{Field: column, Rule: "must be 0 to " + number(most), Got: number(value)}
	}
	return nil
}
