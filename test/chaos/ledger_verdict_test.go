//go:build chaos

package chaos_test

import (
	"slices"
	"strings"
	"testing"
)

const ms = 1_000_000 // in ns

// TestApplicationVerdictCanFail: the check finds each broken promise in a small ledger, and
// accepts what isn't promised.
func TestApplicationVerdictCanFail(t *testing.T) {
	scheduled := func(version int, at, due int64) op { return op{verbSchedule, at * ms, (at + 1) * ms, version, due} }
	cancelled := func(at int64) op { return op{verbCancel, at * ms, (at + 1) * ms, 0, 0} }
	// handled returns a call that began when it was asked for, and ended a ms later.
	handled := func(version int, first, due, at int64, attempt int, how result) []entry {
		e := entry{What: begun, ID: "a", Due: due, First: first, Asked: at * ms, At: at*ms + 1, Attempt: attempt,
			Call: int(at), Payload: payload{Version: version}}
		return []entry{e, {What: ended, ID: "a", At: (at + 1) * ms, Call: int(at), Result: how}}
	}
	done := func(version int, due, at int64) []entry { return handled(version, due, due, at, 1, finished) }
	// step returns the next step of a delivery that was due at start.
	step := func(version int, start, due, at int64) []entry {
		all := handled(version, due, due, at, 1, finished)
		all[0].Payload.Step, all[0].Payload.Starts = 1, []int64{start}
		return all
	}
	for name, test := range map[string]struct {
		ops     []op
		entries [][]entry
		want    string // part of the only broken promise; "": none
	}{
		"all is well":       {[]op{scheduled(1, 10, 20)}, [][]entry{done(1, 20, 21)}, ""},
		"lost":              {[]op{scheduled(1, 10, 20)}, nil, "lost"},
		"never ended":       {[]op{scheduled(1, 10, 20)}, [][]entry{done(1, 20, 21)[:1]}, "lost"},
		"early":             {[]op{scheduled(1, 10, 20)}, [][]entry{done(1, 20, 19)}, "before it was due"},
		"unknown":           {[]op{cancelled(10)}, [][]entry{done(1, 20, 21)}, "no call stored"},
		"cancelled":         {[]op{scheduled(1, 10, 20), cancelled(21)}, [][]entry{done(1, 20, 23)}, "it was cancelled"},
		"cancel came later": {[]op{scheduled(1, 10, 20), cancelled(21)}, [][]entry{done(1, 20, 21)}, ""},
		"new after a cancel": {[]op{scheduled(1, 10, 20), cancelled(21), scheduled(2, 23, 30)},
			[][]entry{done(2, 30, 31)}, ""},
		"retry after a newer version": {[]op{scheduled(1, 10, 20), scheduled(2, 21, 30)},
			[][]entry{handled(1, 20, 20, 25, 1, failed), done(2, 30, 31), handled(1, 20, 33, 34, 2, finished)},
			"after the newer"},
		"first delivery after a newer version": {[]op{scheduled(1, 10, 20), scheduled(2, 21, 30)},
			[][]entry{done(2, 30, 31), done(1, 20, 34)}, ""},
		"retry of a replaced version": {[]op{scheduled(1, 10, 20), scheduled(2, 21, 50)},
			[][]entry{handled(1, 20, 20, 25, 1, failed), handled(1, 20, 33, 34, 2, finished), done(2, 50, 51)},
			"replaced while its handler ran"},
		"replaced after its handler": {[]op{scheduled(1, 10, 20), scheduled(2, 34, 50)},
			[][]entry{handled(1, 20, 20, 25, 1, failed), handled(1, 20, 33, 34, 2, finished), done(2, 50, 51)}, ""},
		"next step due when a cancelled version was": {
			[]op{scheduled(1, 5, 40), cancelled(7), scheduled(2, 10, 20)},
			[][]entry{handled(2, 20, 20, 21, 1, stepped), step(2, 20, 40, 41)}, ""},
		"remembered": {[]op{scheduled(1, 10, 20)},
			[][]entry{done(1, 20, 21), {{What: remembered, ID: "a", Due: 20, At: 23 * ms}}, done(1, 20, 24)}, "remembered"},
		"parked": {[]op{scheduled(1, 10, 20)}, [][]entry{done(1, 20, 21), {{What: parkedTask, ID: "a"}}}, "parked"},
	} {
		l := ledger{ops: map[string][]op{"a": test.ops}, entries: slices.Concat(test.entries...)}
		wrong := l.check().wrong
		if len(wrong) != min(len(test.want), 1) || !strings.Contains(strings.Join(wrong, ""), test.want) {
			t.Errorf("%s: broken %q, want %q", name, wrong, test.want)
		}
	}
	moved := op{verbReschedule, 12 * ms, 13 * ms, 0, 30}
	for want, ops := range map[int][]op{
		-1: {scheduled(1, 10, 20), cancelled(11), moved}, 0: {scheduled(1, 10, 20)}, 1: {scheduled(1, 10, 20), moved},
	} {
		if got := promised(ops); got != want {
			t.Errorf("promised call %d of %v, want %d", got, ops, want)
		}
	}
}
