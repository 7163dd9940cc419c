package model

import "testing"

// TestFailover: one shard fails over to its replica.
func TestFailover(t *testing.T) {
	t.Parallel()
	fall := func(p path, programs string, r rules, promises promises) scope {
		return scope{path: p, programs: programs, quiet: true, movers: 1, failover: true, rules: r, promises: promises}
	}
	explorations(t, []run{
		{name: "no wait, put is lost", breaks: kept, scope: fall(changes(2, 1), "S0;C0", 0, kept)},
		{name: "no wait, cancel is lost", breaks: cancelled, scope: fall(changes(2, 1), "S0;C0", 0, cancelled)},
		{name: "no wait, replacing is lost", breaks: replaced, scope: fall(changes(2, 1), "S0;S0", 0, replaced)},
		{name: "no wait, fence is lost", breaks: getAnswer, scope: fall(changes(2, 1), "S0;G0", 0, getAnswer)},
		{name: "no wait, fence of a clean shard is lost", breaks: polled, scope: fall(changes(2, 1), "S0;S0", 0, polled)},
		{name: "no wait after import", breaks: kept, scope: fall(changes(1, 2), "S0", waits|noWaitImport, kept)},
		{name: "no wait after look", breaks: polled, scope: fall(changes(2, 1), "S0", waits|noWaitLook, polled)},
		{name: "no wait after fence", breaks: cancelled, scope: fall(changes(1, 2), "S0;C0", waits|noWaitFence, cancelled)},
		{name: "repeats remain", breaks: once, scope: fall(changes(1, 2), "S0;C0", waits, once)},
		{name: "waits", scope: fall(changes(1, 2), "S0;C0", waits, kept|cancelled|replaced|single|polled|inPlace)},
	})
	explorations(t, large(each([]path{changes(1, 2), changes(2, 1)}, []string{"S0;C0", "S0;S0"},
		scope{quiet: true, failover: true, rules: waits, crash: moverDies | published,
			promises: kept | cancelled | replaced | single | polled | inPlace})))
	explorations(t, large(each([]path{changes(1, 2, 1)}, []string{"S0;C0"},
		scope{quiet: true, failover: true, rules: waits, crash: moverDies | published,
			promises: kept | cancelled | replaced | single | polled | inPlace})))
}

// TestPasses: movers look with passes that any mover may advance, and servers restart.
func TestPasses(t *testing.T) {
	t.Parallel()
	both := [][3]uint8{{0, 1, 0}, {0, 1, 0}}
	pass := func(programs string, r rules) scope {
		return scope{path: changes(1, 2), homes: both, programs: programs, quiet: true,
			rules: passes | r, promises: polled | inPlace}
	}
	restarted := func(programs string, r rules) scope {
		sc := pass(programs, r)
		sc.restart = true
		return sc
	}
	faults := scope{path: changes(1, 2), programs: "S0;C0", quiet: true, restart: true, crash: imported, stall: moverDies,
		rules: passes, promises: safety}
	ended := faults
	ended.liveness = true
	explorations(t, []run{
		{name: "one task", scope: restarted("S0", 0)},
		{name: "a second one looked for", large: true, scope: restarted("S0G1", 0)},
		{name: "the second one", scope: restarted("S1", 0)},
		{name: "down", scope: scope{path: changes(2, 1), programs: "S0", quiet: true, restart: true, stall: exported,
			rules: passes, promises: safety}},
		{name: "with crashes and stalls, to the end", scope: ended, large: true},
		{name: "two tasks", scope: restarted("S0S1", 0), large: true},
		{name: "two producers", scope: restarted("S0;S1", 0), large: true},
		{name: "without compare-and-set", scope: pass("S0G1", noCompare), breaks: inPlace},
		{name: "without the mark", scope: pass("S0", noDirty), breaks: inPlace},
		{name: "without beginning anew", scope: restarted("S1", keepCursor), breaks: inPlace},
	})
}

// TestRequestMemory: a shard remembers a request by its number. If a worker gives two
// requests the same number, the answer to the second is the first one's batch.
func TestRequestMemory(t *testing.T) {
	t.Parallel()
	both := [][3]uint8{{0, 1, 0}, {0, 1, 0}}
	claims := scope{path: start(1), programs: "S0", quiet: true, scanners: 2, promises: safety | once}
	exports := scope{path: changes(1, 2), homes: both, programs: "S0S1", quiet: true, movers: 1, lost: lostExport,
		rules: passes, promises: polled | inPlace}
	explorations(t, []run{
		{name: "claims", scope: claims},
		{name: "claims, numbered anew", scope: withRules(claims, renumbered), breaks: once},
		{name: "exports", scope: exports},
		{name: "exports, numbered anew", scope: withRules(exports, passes|renumbered)},
		{name: "exports, numbered anew, moved by count", scope: withRules(exports, passes|renumbered|byCount),
			breaks: inPlace},
	})
}

// TestFall: the placement key falls back, and the fleet restores what a fence has seen.
func TestFall(t *testing.T) {
	t.Parallel()
	fall := func(p path, programs string, r rules, promises promises) scope {
		return scope{path: p, programs: programs, quiet: true, falls: true, rules: r, promises: promises}
	}
	there := []path{changes(1, 2), changes(2, 1)}
	programs := []string{"S0;C0", "S0;S0", "S0;G0", "S0;R0", "S0;A0"}
	explorations(t, each(there, programs[:3], fall(nil, "", 0, safety)))
	explorations(t, large(each(there, programs, scope{falls: true, strict: true, crash: allCrashes, stall: moverDies,
		promises: safety})))
	explorations(t, large(each([]path{changes(1, 2, 1), changes(2, 1, 2), changes(1, 2, 3)}, programs,
		fall(nil, "", 0, safety))))
	toTheEnd := fall(changes(1, 2), "S0;C0", 0, safety)
	toTheEnd.liveness = true
	explorations(t, []run{
		{name: "to the end", scope: toTheEnd},
		{name: "written back with the marks of an earlier change", breaks: polled,
			scope: fall(changes(2, 1, 2, 1), "S0", untied, polled)},
	})
}

// TestGather: tasks are in shards that a stable placement doesn't scan. A change to the
// same count recovers them; tasks in their place keep every promise meanwhile.
func TestGather(t *testing.T) {
	t.Parallel()
	faults := scope{strict: true, crash: someCrashes, stall: exported, promises: safety}
	explorations(t, each([]path{start(1).gather(2)}, []string{"S0;C0", "S0;S0", "S0;G0"}, withQuiet(faults)))
	faults.crash, faults.stall = allCrashes, moverDies
	explorations(t, large(each([]path{start(1).gather(2), start(2).gather(3), changes(2, 1).gather(2)},
		[]string{"S0;C0", "S0;S0", "S0;G0", "S0;A0", "S0;R0"}, faults)))
}

// TestFork: the placement falls back, and another change begins with the same epoch.
func TestFork(t *testing.T) {
	t.Parallel()
	fork := func(programs string, r rules, promises promises) scope {
		return scope{path: start(1).begin(2).fork(3), programs: programs, quiet: true,
			rules: r, promises: promises}
	}
	explorations(t, []run{
		{name: "let through", large: true, breaks: kept, scope: fork("S0;S0", equalAccepted|readByEpoch, kept)},
		{name: "refused", scope: fork("S0;C0", 0, safety)},
		{name: "refused, but read", breaks: getAnswer, scope: fork("S0;G0", readByEpoch, safety)},
		{name: "read is refused, too", scope: fork("S0;G0", 0, safety)},
		{name: "fences known by epoch", breaks: replaced, scope: fork("S0;S0", knownFence|knownByEpoch, replaced)},
		{name: "fences known by text", large: true, scope: fork("S0;S0", knownFence, safety)},
		{name: "stuck", breaks: ends, scope: func() scope { s := fork("S0", 0, safety); s.liveness = true; return s }()},
	})
}

// TestRemoval: a topic is removed and made again.
func TestRemoval(t *testing.T) {
	t.Parallel()
	faults := scope{crash: imported, stall: exported, promises: safety}
	explorations(t, each([]path{start(2).remove().change(2), start(2).remove().change(1)}, []string{"S0;C0", "S0;G0"},
		faults))
	explorations(t, large(each([]path{start(2).remove().change(1), changes(1, 2).remove().change(1),
		start(1).remove().change(2)},
		[]string{"S0;C0", "S0;S0", "S0;G0", "S0;A0", "S0;R0"}, faults)))
	// A topic removed during a change may have tasks in shards that only its older count
	// includes. Movers find them later, but callers don't.
	midway := scope{path: start(2).begin(3).remove().change(1), quiet: true, promises: cancelled | replaced | getAnswer}
	for programs, breaks := range map[string]promises{"S0;C0": cancelled, "S0;S0": replaced, "S0;G0": getAnswer} {
		sc := midway
		sc.programs = programs
		explorations(t, []run{{name: "removed while it changes " + programs, scope: sc, breaks: breaks}})
	}
}
