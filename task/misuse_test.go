package task

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMisuse compares the whole message of each mistake of a caller.
func TestMisuse(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	d := NewDelivery(Task{ID: "a"}, func(time.Time, []byte) error { return nil })
	const (
		noNext  = "this delivery can't have a next step; a test of a handler must pass a function to NewDelivery"
		seconds = "due: looks like Unix seconds that were taken for milliseconds; want " +
			"time.Unix(1796119200, 0); got 1970-01-21T18:55:19Z"
		before1971 = "due: must be in 1971 or later: an earlier time is one that was never set; got "

		far = "due: must be at most 100 years ahead; got "
	)
	misuses := map[string]struct {
		err  error
		want string
	}{
		"a next step of nobody":  {NewDelivery(Task{}, nil).Next(now, nil), noNext},
		"one by When":            {NewDelivery(Task{}, nil).NextWhen(Now(), nil), noNext},
		"a next step at no time": {d.NextWhen(When{}, nil), "due: must be given; Now() is due now; got no time"},
		"one at the zero time": {
			d.Next(time.Time{}, nil),
			"due: must be given; Now() is due now; got the zero time.Time",
		},
		"one by seconds":         {d.Next(time.UnixMilli(now.Unix()), nil), seconds},
		"one by seconds as When": {d.NextWhen(At(time.UnixMilli(now.Unix())), nil), seconds},
		"one at a zero column":   {d.Next(time.Unix(0, 0), nil), before1971 + "1970-01-01T00:00:00Z"},
		"one after a zero time": {
			d.Next(time.Time{}.Add(30*time.Minute), nil),
			before1971 + "0001-01-01T00:30:00Z",
		},
		"one at no unit": {
			d.NextWhen(In(30), nil),
			"due: must be at least 1ms: In takes a time.Duration, as in 30*time.Minute; got 30ns",
		},
		"one in no time": {d.NextWhen(In(0), nil), "due: must be given; Now() is due now; got In(0)"},
		"one in 2200": {
			d.Next(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), nil),
			far + "2200-01-01T00:00:00Z",
		},
		"one with a large payload": {
			d.NextWhen(Now(), make([]byte, DefaultMaxPayload+1)),
			"payload: must be at most 262144 bytes (max_payload); got 262145 bytes",
		},
		"one above a lower limit": {
			d.WithMaxPayload(1).NextWhen(Now(), []byte("ab")),
			"payload: must be at most 1 bytes (max_payload); got 2 bytes",
		},
		"the longest duration": {CheckWhen(In(math.MaxInt64), now), far + "2562047h47m16.854775807s"},
		"a topic with a slash": {
			CheckTopic("a/b"),
			"topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 3 bytes with '/' at byte 1",
		},
		"a topic in another alphabet": {
			CheckTopic("Straße"),
			"topic: must be 1 to 64 of A-Z a-z 0-9 . _ -; got 7 bytes with 'ß' at byte 4",
		},
		"an ID of a cut character": {
			CheckID("ab\xc3"),
			"id: must be 1 to 255 bytes of valid UTF-8; got 3 bytes that are not valid UTF-8",
		},
		"a long header key": {
			CheckHeaders(map[string]string{strings.Repeat("k", 129): ""}),
			"header key: must be 1 to 128 bytes of valid UTF-8; got 129 bytes",
		},
		"a reserved header in capital": {
			CheckHeaders(map[string]string{"X-Duefleet-Due": ""}),
			`header key: must not begin with x-duefleet-; got "X-Duefleet-Due" (14 bytes)`,
		},
		"a long correlation ID": {
			CheckOptions(Options{CorrelationID: strings.Repeat("c", 256)}),
			"correlation_id: must be 0 to 255 bytes of valid UTF-8; got 256 bytes",
		},
		"a long expiration": {
			CheckOptions(Options{Expiration: MaxExpiration + time.Millisecond}),
			"expiration: must be 1ms to 1193h2m47.295s; got 1193h2m47.296s",
		},
	}
	for _, name := range slices.Sorted(maps.Keys(misuses)) {
		m := misuses[name]
		if m.err == nil || m.err.Error() != m.want {
			t.Errorf("%s:\n got %v\nwant %s", name, m.err, m.want)
		}
	}
}
