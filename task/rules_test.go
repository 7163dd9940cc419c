package task

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// verdict is a value and parts of the error that its rule returns; none for a valid
// value.
type verdict struct {
	name string
	err  error
	want []string
}

func judge(t *testing.T, verdicts []verdict) {
	t.Helper()
	for _, v := range verdicts {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			if len(v.want) == 0 {
				if v.err != nil {
					t.Fatalf("refused: %v", v.err)
				}
				return
			}
			if !errors.Is(v.err, ErrInvalid) {
				t.Fatalf("got %v, want an ErrInvalid", v.err)
			}
			for _, part := range v.want {
				if !strings.Contains(v.err.Error(), part) {
					t.Errorf("error %q doesn't say %q", v.err, part)
				}
			}
		})
	}
}

func TestTopicIsUpTo64OfItsCharacters(t *testing.T) {
	t.Parallel()
	const rule = "must be 1 to 64 of A-Z a-z 0-9 . _ -"
	judge(t, []verdict{
		{"one letter", CheckTopic("a"), nil},
		{"every kind of character", CheckTopic("AZaz09._-"), nil},
		{"64 bytes", CheckTopic(strings.Repeat("t", 64)), nil},
		{"empty", CheckTopic(""), []string{"topic", rule, "0 bytes"}},
		{"65 bytes", CheckTopic(strings.Repeat("t", 65)), []string{"topic", rule, "65 bytes"}},
		{"a space", CheckTopic("my orders"), []string{"topic", rule, "9 bytes", "' '", "byte 2"}},
		{"a brace", CheckTopic("{x}"), []string{"topic", rule, "3 bytes", "'{'", "byte 0"}},
		{"a colon", CheckTopic("a:0"), []string{"topic", rule, "3 bytes", "':'", "byte 1"}},
		{"a slash", CheckTopic("a/b"), []string{"topic", rule, "'/'"}},
		{"a letter beyond ASCII", CheckTopic("Straße"), []string{"topic", rule, "7 bytes", "'ß'"}},
		{"bytes that are not UTF-8", CheckTopic("a\xff"), []string{"topic", rule, "2 bytes"}},
		{"the characters beside the allowed ones", CheckTopic("@"), []string{"topic", rule, "1 byte"}},
	})
	for _, r := range "@[`{/:,^" {
		if CheckTopic(string(r)) == nil {
			t.Errorf("topic %q was accepted", r)
		}
	}
}

func TestIDIsUpTo255BytesOfUTF8(t *testing.T) {
	t.Parallel()
	const rule = "must be 1 to 255 bytes of valid UTF-8"
	judge(t, []verdict{
		{"one byte", CheckID("x"), nil},
		{"a space", CheckID(" "), nil},
		{"NUL, braces, newlines, an emoji", CheckID("\x00{a}\r\n🚀"), nil},
		{"255 bytes", CheckID(strings.Repeat("x", 255)), nil},
		{"255 bytes in fewer characters", CheckID(strings.Repeat("é", 127) + "x"), nil},
		{"empty", CheckID(""), []string{"id", rule, "0 bytes"}},
		{"256 bytes", CheckID(strings.Repeat("x", 256)), []string{"id", rule, "256 bytes"}},
		{"128 characters of 256 bytes", CheckID(strings.Repeat("é", 128)), []string{"id", rule, "256 bytes"}},
		{"one byte that is not UTF-8", CheckID("\xff"), []string{"id", rule, "1 byte that", "not valid UTF-8"}},
		{"a cut character", CheckID("ab\xc3"), []string{"id", rule, "3 bytes that", "not valid UTF-8"}},
	})
}

func TestContentTypeIsUpTo255BytesOfUTF8(t *testing.T) {
	t.Parallel()
	const rule = "must be 0 to 255 bytes of valid UTF-8"
	judge(t, []verdict{
		{"empty", CheckContentType(""), nil},
		{"255 bytes", CheckContentType(strings.Repeat("c", 255)), nil},
		{"256 bytes", CheckContentType(strings.Repeat("c", 256)), []string{"content_type", rule, "256 bytes"}},
		{"not UTF-8", CheckContentType("text/\xfe"), []string{"content_type", rule, "6 bytes"}},
	})
}

func TestPayloadIsUpToTheLimit(t *testing.T) {
	t.Parallel()
	at := make([]byte, DefaultMaxPayload)
	judge(t, []verdict{
		{"nil", CheckPayload(nil, 10), nil},
		{"empty with a limit of 0", CheckPayload([]byte{}, 0), nil},
		{"256 KiB", CheckPayload(at, DefaultMaxPayload), nil},
		{"256 KiB and one", CheckPayload(append(at, 0), DefaultMaxPayload), []string{"payload",
			"at most 262144 bytes (max_payload)", "262145 bytes"}},
		{"one byte with a limit of 0", CheckPayload([]byte{1}, 0), []string{"payload", "at most 0 bytes", "1 byte"}},
	})
}

func TestErrorsDoNotShowThePayloadOrHeaderValues(t *testing.T) {
	t.Parallel()
	err := CheckPayload([]byte("secret-payload"), 3)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error shows the payload: %v", err)
	}
	err = CheckHeaders(map[string]string{"authorization": "secret\xff"})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error shows the value of a header: %v", err)
	}
}

func headers(n int) map[string]string {
	h := make(map[string]string, n)
	for i := range n {
		h[fmt.Sprintf("h%02d", i)] = ""
	}
	return h
}

func TestHeadersKeepTheirLimits(t *testing.T) {
	t.Parallel()
	one := func(k, v string) error { return CheckHeaders(map[string]string{k: v}) }
	const key = "must be 1 to 128 bytes of valid UTF-8"
	judge(t, []verdict{
		{"none", CheckHeaders(nil), nil},
		{"32", CheckHeaders(headers(32)), nil},
		{"33", CheckHeaders(headers(33)), []string{"headers", "at most 32", "33 headers"}},
		{"a key of 128 bytes", one(strings.Repeat("k", 128), "v"), nil},
		{"a key of 129 bytes", one(strings.Repeat("k", 129), "v"), []string{"header key", key, "129 bytes"}},
		{"an empty key", one("", "v"), []string{"header key", key, "0 bytes"}},
		{"a key that is not UTF-8", one("k\xff", "v"), []string{"header key", key, "2 bytes"}},
		{"an empty value", one("k", ""), nil},
		{"a value that is not UTF-8", one("k", "v\xff"), []string{"header k", "must be valid UTF-8", "2 bytes"}},
		{"64 KiB together", one("k", strings.Repeat("v", 64<<10-1)), nil},
		{"64 KiB and one", one("k", strings.Repeat("v", 64<<10)), []string{"headers", "at most 65536 bytes", "65537 bytes"}},
		{"traceparent", one("traceparent", "00-ab-cd-01"), nil},
		{"almost the reserved prefix", one("x-duefleet", "v"), nil},
		{"the reserved prefix inside", one("my-x-duefleet-", "v"), nil},
		{"CC", one("CC", "v"), []string{"header key", "must not be CC or BCC", "2 bytes"}},
		{"BCC", one("BCC", "v"), []string{"header key", "must not be CC or BCC", "3 bytes"}},
		{"cc", one("cc", "v"), nil},
		{"the reserved prefix", one("x-duefleet-", "v"), []string{"header key", "must not begin with x-duefleet-",
			"11 bytes"}},
		{"a reserved header", one("x-duefleet-due", "v"), []string{"header key", "must not begin with x-duefleet-",
			"14 bytes"}},
		{"a reserved header in capitals", one("X-DueFleet-Mine", "v"), []string{"header key",
			"must not begin with x-duefleet-", "15 bytes"}},
	})
}

func TestDueIsAtMost100YearsAhead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	limit := now.Add(36525 * 24 * time.Hour)
	judge(t, []verdict{
		{"now", CheckDue(now, now), nil},
		{"long past", CheckDue(time.Time{}, now), nil},
		{"100 years", CheckDue(limit, now), nil},
		{"100 years and a millisecond", CheckDue(limit.Add(time.Millisecond), now),
			[]string{"due", "at most 100 years ahead", "2126-12-02T10:00:00Z"}},
	})
}

func TestWhenIsADueTimeAndAForgottenOneIsNone(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		when When
		text string
		due  time.Time
	}{
		{Now(), "in 0s", now},
		{In(90 * time.Second), "in 1m30s", now.Add(90 * time.Second)},
		{In(-time.Second), "in -1s", now.Add(-time.Second)},
		{At(now.Add(time.Hour)), "at 2026-12-01T11:00:00.000Z", now.Add(time.Hour)},
		{At(time.UnixMilli(0)), "at 1970-01-01T00:00:00.000Z", time.UnixMilli(0)},
		{When{}, "no time", time.Time{}},
	} {
		if got := row.when.Time(now); row.when.String() != row.text || !got.Equal(row.due) ||
			row.when.IsZero() != (row.text == "no time") {
			t.Errorf("%v: due %v, want %s, due %v", row.when, got, row.text, row.due)
		}
		wait, relative := row.when.Wait()
		if relative != strings.HasPrefix(row.text, "in ") || relative && !now.Add(wait).Equal(row.due) {
			t.Errorf("%v: waits %v, %v", row.when, wait, relative)
		}
		at, absolute := row.when.Instant()
		if absolute != strings.HasPrefix(row.text, "at ") || absolute && !at.Equal(row.due) {
			t.Errorf("%v: at %v, %v", row.when, at, absolute)
		}
	}
	judge(t, []verdict{
		{"now", CheckWhen(Now(), now), nil},
		{"the past", CheckWhen(At(now.AddDate(-1, 0, 0)), now), nil},
		{"a negative wait", CheckWhen(In(-time.Hour), now), nil},
		{"no time", CheckWhen(When{}, now), []string{"due", "must be given", "Now() is due now"}},
		{"a zero time", CheckWhen(At(time.Time{}), now), []string{"due", "must be given", "zero time.Time"}},
		{"seconds", CheckWhen(At(time.UnixMilli(now.Unix())), now), []string{"due", "looks like Unix seconds",
			"time.Unix(1796119200, 0)"}},
		{"100 years and a minute", CheckWhen(In(100*366*24*time.Hour), now), []string{"due", "at most 100 years ahead"}},
	})
}

func TestRuleErrorCanBeTakenApart(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("schedule: %w", CheckID(""))
	var rule *RuleError
	if !errors.As(err, &rule) || rule.Field != "id" || rule.Rule == "" || rule.Got != "0 bytes" {
		t.Fatalf("got %#v of %v", rule, err)
	}
	for _, other := range []error{ErrNotFound, ErrExists, ErrUnknownTopic, ErrRedisFull} {
		if errors.Is(err, other) {
			t.Errorf("a RuleError is %v too", other)
		}
	}
}

// TestTheGoDirectiveNamesNoPatchRelease: a patch release in the go directive would force
// it on every application that uses the libraries.
func TestTheGoDirectiveNamesNoPatchRelease(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("../go.mod")
	check.OK(t, err)
	directive := regexp.MustCompile(`(?m)^go (1\.\d+(\.\d+)?)$`).FindSubmatch(module)
	if directive == nil || len(directive[2]) > 0 && string(directive[2]) != ".0" {
		t.Errorf("got %q, want the first release of a Go version, as in go 1.26.0", directive)
	}
}
