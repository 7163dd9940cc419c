package recurrence

import (
	"archive/zip"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
)

func mustCron(t *testing.T, expression, zone string) Rule {
	t.Helper()
	r, err := Cron(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAfter has the cases that people ask about, each with the next two times.
func TestAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expression, zone, after, first, second string }{
		{"0 9 1 * *", "Europe/Berlin", "2026-01-31T12:00:00Z", "2026-02-01T08:00:00Z", "2026-03-01T08:00:00Z"},
		{"0 9 1 * *", "Europe/Berlin", "2026-02-01T08:00:00Z", "2026-03-01T08:00:00Z", "2026-04-01T07:00:00Z"},
		// 02:00 to 03:00 is skipped on 29 March, and comes twice on 25 October
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		{"*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		{"0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z", "2026-10-27T01:30:00Z"},
		{"0 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T03:00:00Z"},
		// midnight doesn't exist
		{"0 0 * * *", "America/Havana", "2026-03-07T12:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		// Samoa had no 30 December in 2011
		{"0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", "2011-12-30T10:00:00Z", "2012-12-29T22:00:00Z"},
		// half an hour of DST
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"},
		{"0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z", "2108-02-29T00:00:00Z"},
		{"0 0 L * *", "UTC", "2026-02-01T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"0 12 13 * FRI", "UTC", "2026-02-07T00:00:00Z", "2026-02-13T12:00:00Z", "2026-02-20T12:00:00Z"},
		{"0 12 * * FRI#3", "UTC", "2026-02-07T00:00:00Z", "2026-02-20T12:00:00Z", "2026-03-20T12:00:00Z"},
		{"@daily", "Asia/Kathmandu", "2026-02-07T00:00:00Z", "2026-02-07T18:15:00Z", "2026-02-08T18:15:00Z"},
		{"0 0 1 1 *", "UTC", "2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"},
	} {
		r := mustCron(t, c.expression, c.zone)
		after, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		first, ok := r.After(after)
		second, more := r.After(first)
		if !ok || !more {
			t.Errorf("%s after %s: none", r, c.after)
		}
		got := []string{first.UTC().Format(time.RFC3339), second.UTC().Format(time.RFC3339)}
		if want := []string{c.first, c.second}; !slices.Equal(got, want) {
			t.Errorf("%s after %s: %s, want %s", r, c.after, got, want)
		}
		if first.Location() != r.zone {
			t.Errorf("%s: in zone %s", r, first.Location())
		}
	}
}

// zones returns names of the IANA database that comes with Go, one for each set of rules.
func zones(t *testing.T) (names []string) {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	database, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	rules := map[uint32]bool{} // by checksum: many names are of the same rules
	for _, f := range database.File {
		if !strings.HasSuffix(f.Name, "/") && !rules[f.CRC32] {
			rules[f.CRC32] = true
			names = append(names, f.Name)
		}
	}
	if len(names) < 300 {
		t.Fatalf("only %d zones", len(names))
	}
	return names
}

// clock walks through a time minute by minute, as somebody does who looks at a clock on the
// wall. Each local time that the clock shows for the first time counts, and each that it skips.
type clock struct {
	at   time.Time
	seen time.Time // the latest local time so far, with its fields in UTC
}

func (c *clock) local() time.Time {
	_, offset := c.at.Zone()
	return c.at.Add(time.Duration(offset) * time.Second).UTC()
}

// due steps on until it is past end. It returns the times at which a local time fits, by
// expression.
func (c *clock) due(end time.Time, fits map[string]func(local time.Time) bool) map[string][]time.Time {
	all := map[string][]time.Time{}
	for c.seen = c.local(); c.at.Before(end); {
		c.at = c.at.Add(time.Minute)
		for now := c.local(); c.seen.Before(now); {
			c.seen = c.seen.Add(time.Minute)
			for expression, fit := range fits {
				if n := len(all[expression]); fit(c.seen) && (n == 0 || all[expression][n-1].Before(c.at)) {
					all[expression] = append(all[expression], c.at)
				}
			}
		}
	}
	return all
}

// changes returns the times of a year at which the clocks of a zone jump. The first day of
// July stands for a zone without any.
func changes(zone *time.Location, year int) (all []time.Time) {
	end := time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := time.Date(year, 1, 1, 0, 0, 0, 0, zone); ; {
		_, next := at.ZoneBounds()
		if next.IsZero() || !next.Before(end) {
			break
		}
		all = append(all, next)
		at = next
	}
	if len(all) == 0 {
		all = append(all, time.Date(year, 7, 1, 0, 0, 0, 0, time.UTC))
	}
	return all
}

// TestEveryZoneAgreesWithAClockOnTheWall: around each change of the clocks in every zone, the
// rule has exactly the times of somebody who looks at the clock each minute. That is another
// way to count: it goes from instants to local times, and After the other way round.
func TestEveryZoneAgreesWithAClockOnTheWall(t *testing.T) {
	t.Parallel()
	expressions := map[string]func(time.Time) bool{
		"7 * * * *":      func(l time.Time) bool { return l.Minute() == 7 },
		"30 2 * * *":     func(l time.Time) bool { return l.Hour() == 2 && l.Minute() == 30 },
		"0 0 * * *":      func(l time.Time) bool { return l.Hour() == 0 && l.Minute() == 0 },
		"*/15 1-3 * * *": func(l time.Time) bool { return l.Hour() >= 1 && l.Hour() <= 3 && l.Minute()%15 == 0 },
		"59 23 * * SUN":  func(l time.Time) bool { return l.Hour() == 23 && l.Minute() == 59 && l.Weekday() == time.Sunday },
		"10 */6 30 12 *": func(l time.Time) bool {
			return l.Minute() == 10 && l.Hour()%6 == 0 && l.Day() == 30 && l.Month() == time.December
		},
	}
	compared := 0
	for _, name := range zones(t) {
		zone, err := time.LoadLocation(name)
		if err != nil {
			continue // a file of the database that is no zone
		}
		for _, change := range slices.Concat(changes(zone, 2011), changes(zone, 2026)) {
			from, end := change.Add(-26*time.Hour).Truncate(time.Minute), change.Add(26*time.Hour)
			want := (&clock{at: from.In(zone)}).due(end, expressions)
			for expression := range expressions {
				var got []time.Time
				for at, r := from, mustCron(t, expression, name); ; {
					next, ok := r.After(at)
					if !ok || next.After(end) {
						break
					}
					got, at = append(got, next), next
				}
				compared += len(got)
				if !slices.EqualFunc(got, want[expression], time.Time.Equal) {
					t.Errorf("%s in %s around %s: %d times, want %d", expression, name, change, len(got), len(want[expression]))
				}
			}
		}
	}
	if compared < 30_000 {
		t.Errorf("only %d times compared", compared)
	}
}

func TestEvery(t *testing.T) {
	t.Parallel()
	r, err := Every(90*time.Minute + time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 29, 0, 30, 0, 1, time.UTC)
	next, ok := r.After(at)
	if want := time.Date(2026, 3, 29, 2, 0, 0, 0, time.UTC); !ok || !next.Equal(want) {
		t.Errorf("%s after %s: %s", r, at, next)
	}
	if r.String() != "every 1h30m0s" {
		t.Errorf("text %q", r)
	}
}

func TestUntil(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC)
	r := mustCron(t, "0 0 * * *", "UTC").Until(end)
	runs := 0
	for at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC); ; runs++ {
		next, ok := r.After(at)
		if !ok {
			break
		}
		at = next
	}
	if runs != 2 {
		t.Errorf("%d runs, want those of the 2nd and the 3rd", runs)
	}
	if want := "0 0 * * * UTC until 2026-12-03T00:00:00Z"; r.String() != want {
		t.Errorf("text %q, want %q", r, want)
	}
	if _, ok := (Rule{}).After(end); ok {
		t.Error("the zero rule has a time")
	}
}

func TestBadRules(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		"", "x", "* * * *", "0 0 * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "0 0 30 2 *", "@every 1h", "@reboot",
		"TZ=UTC 0 0 * * *", "CRON_TZ=Asia/Tokyo 0 0 * * *", strings.Repeat("1,", 5000) + "1 * * * *", "*/0 * * * *",
		"H * * * *",
	} {
		if r, err := Cron(expression, "UTC"); !errors.Is(err, task.ErrInvalid) {
			t.Errorf("%.40q: %v, %v", expression, r, err)
		}
	}
	for _, zone := range []string{"", "Local", "CEST+1", "Europe/Atlantis", "../etc/passwd"} {
		if r, err := Cron("0 0 * * *", zone); !errors.Is(err, task.ErrInvalid) {
			t.Errorf("zone %q: %v, %v", zone, r, err)
		}
	}
	for _, d := range []time.Duration{0, -time.Hour, time.Second - 1, task.MaxAhead + time.Millisecond} {
		if r, err := Every(d); !errors.Is(err, task.ErrInvalid) {
			t.Errorf("every %s: %v, %v", d, r, err)
		}
	}
}
