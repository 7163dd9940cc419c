package model

import (
	"flag"
	"strings"
	"testing"
)

var long = flag.Bool("long", false, "explore the large scopes, too; it takes minutes")

// run is one exploration and its expected result.
type run struct {
	name  string
	scope scope
	// breaks is the promise that the exploration must find broken, or 0 if all are kept.
	breaks promises
	// large runs need -long.
	large bool
}

func explorations(t *testing.T, runs []run) {
	t.Helper()
	for _, r := range runs {
		if r.large && !*long {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			got := explore(r.scope)
			t.Log(got)
			switch {
			case got.broken != r.breaks && got.broken != 0:
				t.Errorf("a promise is broken:\n%s", strings.Join(got.trace, "\n"))
			case got.broken != r.breaks:
				t.Errorf("want a trace that breaks %s", describe(r.breaks))
			case testing.Verbose() && got.broken != 0:
				t.Logf("as expected, because the rule is left out:\n%s", strings.Join(got.trace, "\n"))
			}
		})
	}
}
