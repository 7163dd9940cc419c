// Package check ends a test whose result isn't as it must be, or that waits too long.
package check

import (
	"flag"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// T is the part of *testing.T that a check needs. A *rapid.T has it too.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// OK ends the test if err isn't nil.
func OK(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal ends the test unless got is want.
func Equal[V comparable](t T, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// Line reports an error unless got is one line that begins with want. An empty want means that got
// is empty.
func Line(t T, what, got, want string) {
	t.Helper()
	if !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "\n") {
		t.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

// Refusal is the error of a wrong call, and the message that it must have. It is an alias,
// so that tables may leave out the names of its fields.
type Refusal = struct {
	Err  error
	Want string
}

// Refusals reports each refusal, by name, whose message is another one.
func Refusals(t T, all map[string]Refusal) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if r := all[name]; r.Err == nil || r.Err.Error() != r.Want {
			t.Errorf("%s:\n got %v\nwant %s", name, r.Err, r.Want)
		}
	}
}

// Parallel lets more tests run at a time than there are processors, this number of times more,
// because most tests wait most of the time. Call it in TestMain, after flag.Parse. It doesn't
// change -test.parallel if the command line sets it.
func Parallel(each int) {
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", strconv.Itoa(each*runtime.GOMAXPROCS(0))) // the flag exists in every test binary
	}
}
