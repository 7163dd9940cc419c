package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/producer"
)

// errDuration and errInstant say what the two ways to give a due time accept.
var (
	errDuration = errors.New("want a duration such as 30m, 1h30m, 500ms or 2d, of at most 100 years")
	errInstant  = errors.New("want RFC 3339 with a zone, such as 2026-12-01T10:00:00Z, or Unix milliseconds, such as 1796119200000")
)

// when is a due time as a user gives it: a distance from Redis's now, or an
// instant.
type when struct {
	relative bool
	in       time.Duration
	at       time.Time
}

// producer is the same time in the library's words.
func (w when) producer() producer.When {
	if w.relative {
		return producer.In(w.in)
	}
	return producer.At(w.at)
}

// due is the instant it stands for, seen from now.
func (w when) due(now time.Time) time.Time {
	if w.relative {
		return now.Add(w.in)
	}
	return w.at
}

// parseIn reads Go's durations, with whole or fractional days in front: 2d,
// 1.5d, 1d12h, -2d.
func parseIn(s string) (when, error) {
	d, err := parseDuration(s)
	if err != nil {
		return when{}, errDuration
	}
	return when{relative: true, in: d}, nil
}

func parseDuration(s string) (time.Duration, error) {
	unsigned := strings.TrimLeft(s, "+-")
	days, rest, found := strings.Cut(unsigned, "d")
	if !found {
		return time.ParseDuration(s)
	}
	// An hour is the largest unit time.ParseDuration knows, and it catches the
	// overflow of what is scaled to it.
	whole, err := time.ParseDuration(days + "h")
	if err != nil || len(s)-len(unsigned) > 1 || strings.ContainsAny(days, "hmsuµn+-") {
		return 0, errDuration
	}
	total := whole * 24
	if total/24 != whole {
		return 0, errDuration
	}
	if rest != "" {
		part, err := time.ParseDuration(rest)
		if err != nil || strings.ContainsAny(rest, "+-") || total+part < total {
			return 0, errDuration
		}
		total += part
	}
	if strings.HasPrefix(s, "-") {
		total = -total
	}
	return total, nil
}

// parseAt reads RFC 3339 or Unix milliseconds.
func parseAt(s string) (when, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return when{at: time.UnixMilli(ms).UTC()}, nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return when{}, errInstant
	}
	return when{at: at.UTC()}, nil
}
