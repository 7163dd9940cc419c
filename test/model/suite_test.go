package model

import "testing"

const (
	someCrashes = beforeNew | beforeClosing | imported
	mostCrashes = beforeNew | beforeClosing | exported | imported | published
	allCrashes  = beforeOld | mostCrashes
	moverDies   = exported | imported
)

// each makes one run for each path and set of programs.
func each(paths []path, programs []string, sc scope) (runs []run) {
	for _, p := range paths {
		for _, text := range programs {
			sc := sc
			sc.path, sc.programs = p, text
			runs = append(runs, run{name: p.String() + " " + text, scope: sc})
		}
	}
	return runs
}

func withQuiet(sc scope) scope {
	sc.quiet = true
	return sc
}

// large marks runs that need -long.
func large(runs []run) []run {
	for i := range runs {
		runs[i].large = true
	}
	return runs
}

// TestDraft: the protocol's first draft, and the traces that break it.
func TestDraft(t *testing.T) {
	t.Parallel()
	explorations(t, []run{
		{name: "stalled mover imports after the end", breaks: cancelled,
			scope: scope{path: changes(1, 2), programs: "S0;C0", stall: exported, quiet: true, rules: draft,
				promises: cancelled}},
		{name: "stalled mover imports over a schedule", breaks: replaced,
			scope: scope{path: changes(1, 2), programs: "S0;S0", stall: exported, quiet: true, rules: draft,
				promises: replaced}},
		{name: "stale get", breaks: getAnswer,
			scope: scope{path: changes(1, 2), programs: "S0;G0", movers: 1, quiet: true, rules: draft, promises: getAnswer}},
		{name: "started over at the closing delete", breaks: once,
			scope: scope{path: changes(1, 2, 1), programs: "S0;C0", movers: 1, quiet: true, rules: draft, promises: once}},
		{name: "half a cancel swallows a later schedule", breaks: kept,
			scope: scope{path: changes(1, 2), programs: "C0;S0", movers: 1, quiet: true, crash: beforeClosing, strict: true,
				rules: draft, promises: kept}},
		{name: "half a schedule outlives a later one", breaks: replaced,
			scope: scope{path: changes(1, 2), programs: "S0;S0", movers: 1, quiet: true, crash: beforeClosing, strict: true,
				rules: draft, promises: replaced}},
	})
}

// TestOneChange: one change of M, with crashes and stalls at every point, and callers
// that use any placement so far.
func TestOneChange(t *testing.T) {
	t.Parallel()
	faults := scope{strict: true, crash: everywhere, stall: everywhere, promises: safety}
	explorations(t, each([]path{changes(1, 2)}, []string{"S0;G0"}, withQuiet(faults)))
	explorations(t, large(each([]path{changes(1, 2)}, []string{"S0;C0", "S0;S0", "S0;G0"}, faults)))
	explorations(t, large(each([]path{changes(2, 1), changes(2, 3)}, []string{"S0;C0", "S0;S0", "S0;G0"}, faults)))
	faults.crash, faults.stall = someCrashes, exported
	explorations(t, each([]path{changes(1, 2)}, []string{"S0;C0"}, withQuiet(faults)))
	explorations(t, large(each([]path{changes(1, 2), changes(2, 1)},
		[]string{"S0;S0;C0", "S0C0;S0", "S0S0;C0", "C0S0;S0", "S0G0;S0", "S0G0;C0"}, faults)))
}

func TestTwoChanges(t *testing.T) {
	t.Parallel()
	there := []path{changes(1, 2, 1), changes(1, 2, 3), changes(3, 2, 1), changes(2, 3, 1)}
	faults := scope{strict: true, crash: mostCrashes, stall: moverDies, promises: safety}
	explorations(t, large(each(there, []string{"S0;C0"}, faults)))
	explorations(t, large(each([]path{changes(1, 2, 1), changes(3, 2, 1)}, []string{"S0;G0"}, faults)))
	faults.crash, faults.stall = beforeClosing|imported, exported
	explorations(t, large(each(there, []string{"S0;S0"}, faults)))
	faults.rules = knownFence
	explorations(t, large(each(there[:3], []string{"S0;C0", "S0;S0"}, faults)))
	explorations(t, each(there[:1], []string{"S0;C0"}, scope{crash: imported, movers: 1, rules: knownFence,
		promises: safety}))
}

func TestTwoTasks(t *testing.T) {
	t.Parallel()
	both := [][3]uint8{{0, 1, 0}, {0, 1, 0}}
	newcomer := [][3]uint8{{0, 0, 2}, {0, 1, 1}}
	staying := [][3]uint8{{0, 1, 0}, {0, 0, 0}}
	explorations(t, large([]run{
		{name: "both move", scope: scope{path: changes(1, 2), homes: both, quiet: true, programs: "S0;S1",
			strict: true, crash: imported, stall: exported, promises: safety}},
		{name: "one moves, one is new", scope: scope{path: changes(2, 3), homes: newcomer, quiet: true, programs: "S0;C0S1",
			strict: true, crash: beforeNew, stall: exported, promises: safety}},
		{name: "one moves, one stays", scope: scope{path: changes(1, 2), homes: staying, quiet: true, programs: "S0C0;S1",
			strict: true, crash: beforeNew | imported, stall: exported, promises: safety}},
		{name: "two scanners", scope: scope{path: changes(1, 2), scanners: 2, programs: "S0;C0",
			crash: moverDies | claimed | published, stall: everywhere, promises: safety}},
		{name: "two scanners, replaced", scope: scope{path: changes(2, 1), scanners: 2, programs: "S0;S0",
			crash: imported | published, stall: exported | claimed | published, promises: safety}},
	}))
}

// TestOnce: without a crash or a stall, a task is delivered once.
func TestOnce(t *testing.T) {
	t.Parallel()
	healthy := scope{promises: once}
	explorations(t, each([]path{changes(1, 2, 1)}, []string{"S0;C0"}, withQuiet(healthy)))
	explorations(t, large(each([]path{changes(1, 2, 1), changes(1, 2, 3), changes(3, 2, 1)},
		[]string{"S0;C0", "S0;S0", "S0S0;C0"}, healthy)))
	healthy.rules = knownFence
	explorations(t, large(each([]path{changes(1, 2, 1), changes(1, 2, 3), changes(3, 2, 1)}, []string{"S0;C0", "S0;S0"},
		healthy)))
	explorations(t, large([]run{
		{name: "two scanners", scope: scope{path: changes(1, 2, 1), scanners: 2, programs: "S0;S0", promises: once}},
		{name: "movers export what is due, clocks are arbitrary",
			scope: scope{path: changes(1, 2, 1), programs: "S0;S0", rules: exportDue, promises: once}},
	}))
}

// TestRepeats: a single crash or stall repeats a delivery only in the cases named here.
func TestRepeats(t *testing.T) {
	t.Parallel()
	at := func(crash, stall points, rules rules) scope {
		return scope{path: changes(1, 2), programs: "S0;S0", crash: crash, stall: stall, rules: rules, promises: once}
	}
	explorations(t, []run{
		{name: "producer dies", large: true, scope: at(beforeOld|beforeNew|beforeClosing, 0, 0)},
		{name: "mover dies with an export", scope: at(exported, 0, 0)},
		{name: "scanner dies before it publishes", scope: at(claimed, 0, 0)},
		{name: "mover dies before it settles", scope: at(imported, 0, 0), breaks: once},
		{name: "scanner dies before it settles", scope: at(published, 0, 0), breaks: once},
		{name: "mover sleeps with an export", scope: at(0, exported, 0)},
		{name: "mover sleeps with an export, import knows no deadline", scope: at(0, exported, noDeadline), breaks: once},
		{name: "mover sleeps before it settles", scope: at(0, imported, 0), breaks: once},
		{name: "scanner sleeps before it publishes", scope: at(0, claimed, 0), breaks: once},
		{name: "scanner sleeps before it settles", scope: at(0, published, 0), breaks: once},
	})
}

// TestEnds: from every state, healthy steps end the change.
func TestEnds(t *testing.T) {
	t.Parallel()
	explorations(t, []run{
		{name: "1 to 2", scope: scope{liveness: true, path: changes(1, 2), programs: "S0", crash: everywhere,
			stall: everywhere, promises: safety}},
		{name: "1 to 2, cancel", large: true,
			scope: scope{liveness: true, path: changes(1, 2), programs: "S0;C0", crash: everywhere, stall: everywhere,
				promises: safety}},
		{name: "2 to 1", large: true,
			scope: scope{liveness: true, path: changes(2, 1), programs: "S0;S0", crash: moverDies | claimed | published,
				stall: everywhere, promises: safety}},
		{name: "there and back", large: true,
			scope: scope{liveness: true, path: changes(1, 2, 1), programs: "S0;C0", crash: beforeClosing | moverDies | published,
				stall: exported, promises: safety}},
		{name: "there and back, parked",
			scope: scope{liveness: true, park: true, quiet: true, path: changes(1, 2, 1), programs: "S0",
				crash: exported | published, stall: exported, promises: single | polled | inPlace}},
	})
}

func TestIfAbsentAndReschedule(t *testing.T) {
	t.Parallel()
	faults := scope{strict: true, crash: allCrashes, stall: moverDies, promises: safety}
	explorations(t, each([]path{changes(1, 2)}, []string{"C0;A0"}, withQuiet(faults)))
	explorations(t, each([]path{changes(1, 2)}, []string{"S0;A0", "S0;R0"},
		scope{quiet: true, crash: imported, stall: exported, promises: safety}))
	explorations(t, large(each([]path{changes(1, 2)}, []string{"S0;A0", "S0;R0", "S0A0;C0", "S0R0;C0", "S0;R0;C0"},
		faults)))
	faults = scope{quiet: true, crash: beforeNew | imported, stall: exported, promises: safety}
	explorations(t, large(each([]path{changes(1, 2, 1)}, []string{"S0;A0", "S0;R0", "S0A0;C0"}, faults)))
}

func TestParked(t *testing.T) {
	t.Parallel()
	faults := scope{park: true, crash: exported | claimed | published, stall: published,
		promises: kept | cancelled | replaced | polled | inPlace | staysParked}
	explorations(t, each([]path{changes(1, 2)}, []string{"S0;C0"}, faults))
	explorations(t, large(each([]path{changes(2, 1), changes(1, 2, 1)}, []string{"S0;C0"}, faults)))
	explorations(t, []run{{name: "export judged by its due time", breaks: staysParked,
		scope: scope{park: true, path: changes(1, 2), programs: "S0", crash: exported, rules: noPrior,
			promises: staysParked}}})
}

// TestRecurring: no run of a recurring task is left out, whatever dies while M changes. Only a
// crash or a stall repeats one.
func TestRecurring(t *testing.T) {
	t.Parallel()
	faults := scope{runs: 3, strict: true, quiet: true, crash: moverDies | claimed | published,
		stall: exported | claimed | published, promises: safety}
	explorations(t, each([]path{changes(1, 2)}, []string{"S0", "S0;C0"}, faults))
	explorations(t, large(each([]path{changes(2, 1), changes(1, 2, 1)}, []string{"S0;C0", "S0;S0", "S0;R0"}, faults)))
	healthy := scope{runs: 3, quiet: true, promises: once | gapless}
	explorations(t, each([]path{changes(1, 2, 1)}, []string{"S0;C0"}, healthy))
	explorations(t, []run{
		{name: "two scanners", scope: scope{runs: 3, scanners: 2, movers: 1, quiet: true, path: changes(1, 2), programs: "S0",
			crash: claimed | published, stall: claimed | published, promises: safety}},
		{name: "a run is settled under its token", breaks: gapless, scope: scope{runs: 3, scanners: 2, movers: 1, quiet: true,
			path: changes(1, 2), programs: "S0", stall: published, rules: tokenless, promises: gapless}},
	})
}

// TestEveryRuleIsNeeded: leaving out any rule breaks a promise.
func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()
	without := func(r rules, programs string) scope {
		return scope{path: changes(1, 2), programs: programs, strict: true, crash: allCrashes, stall: moverDies,
			rules: r, promises: safety}
	}
	explorations(t, []run{
		{name: "a change ends under its own epoch", breaks: cancelled, scope: without(oneEpoch|noDeadline, "S0;C0")},
		{name: "get carries an epoch", breaks: getAnswer, scope: without(uncheckedRead, "S0;G0")},
		{name: "MOVED at the closing delete is done", breaks: once,
			scope: scope{path: changes(1, 2, 1), programs: "S0;S0", quiet: true, rules: startOver, promises: once}},
		{name: "old sees the epoch before new is written", breaks: replaced, scope: without(noTouch, "S0;S0")},
		{name: "cancel begins at old", breaks: kept, scope: without(newFirst, "S0;C0")},
		{name: "handled", breaks: cancelled, scope: without(noHandled, "S0;C0")},
		{name: "fence", breaks: cancelled, scope: without(noFence, "S0;C0")},
		{name: "leased counts as misplaced", breaks: inPlace, scope: without(ignoreLeased, "S0;C0")},
		{name: "all shards of both counts must be clean", breaks: polled,
			scope: scope{path: changes(2, 1), programs: "S0;S0", rules: newRange, promises: polled}},
		{name: "settle is not refused for its epoch", breaks: once,
			scope: scope{path: changes(1, 2), programs: "S0;S0", rules: settleChecked, promises: once}},
	})
}
