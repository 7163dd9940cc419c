package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/duefleet/duefleet/test/check"
)

func TestMain(m *testing.M) { os.Exit(check.Leaks(m)) }

// TestIDsAreShownAsTheyAre: a plain ID stays as it is. Every other ID is a JSON string,
// in which nothing can move a terminal's cursor or reverse its text.
func TestIDsAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"o-1":                      "o-1",
		"customer:17/ä$<&>'`漢":     "customer:17/ä$<&>'`漢",
		"":                         `""`,
		"a b":                      `"a b"`,
		" a":                       `" a"`,
		`"q"`:                      `"\"q\""`,
		`a\b`:                      `"a\\b"`,
		"tab\tnew\nline":           `"tab\u0009new\u000aline"`,
		"\x1b[31mred":              `"\u001b[31mred"`,
		"turned\u202eround":        `"turned\u202eround"`,
		"far \U000e0041 away":      `"far \udb40\udc41 away"`,
		"no\u00a0break\u3000space": `"no\u00a0break\u3000space"`,
		"\xff":                     `"\ufffd"`,
	} {
		got := ID(id)
		if got != want {
			t.Errorf("%q: got %s, want %s", id, got, want)
		}
		var back string
		if got[0] == '"' && (json.Unmarshal([]byte(got), &back) != nil || back != strings.ToValidUTF8(id, "\ufffd")) {
			t.Errorf("%q: %s is %q", id, got, back)
		}
	}
}

// TestAListIsAnArrayOrLines: each element is on its own line in both formats.
func TestAListIsAnArrayOrLines(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		format Format
		n      int
	}{
		"[]\n":                   {JSON, 0},
		"[\"<1>\"]\n":            {JSON, 1},
		"[\"<1>\",\n \"<2>\"]\n": {JSON, 2},
		"":                       {NDJSON, 0},
		"\"<1>\"\n\"<2>\"\n":     {NDJSON, 2},
	} {
		var out strings.Builder
		list := NewJSONList(&out, c.format)
		for _, v := range []string{"<1>", "<2>"}[:c.n] {
			check.OK(t, list.Add(v))
		}
		if err := list.Close(); err != nil || out.String() != want {
			t.Errorf("%s of %d: %q, %v; want %q", c.format, c.n, out.String(), err, want)
		}
	}
}

func TestDurationFlag(t *testing.T) {
	t.Parallel()
	var d time.Duration
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	DurationVar(f, &d, "wait", time.Minute, "longest wait")
	usage := f.FlagUsages()
	if d != time.Minute || !strings.Contains(usage, "--wait duration   longest wait (default 1m0s)") {
		t.Errorf("default %v, usage %q", d, usage)
	}
	if err := f.Parse([]string{"--wait", "1d12h"}); err != nil || d != 36*time.Hour {
		t.Errorf("got %v, %v", d, err)
	}
	err := f.Parse([]string{"--wait", "30"})
	if err == nil || !strings.Contains(err.Error(), "want a duration with a unit") {
		t.Errorf("got %v", err)
	}
}
