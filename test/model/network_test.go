package model

import "testing"

// TestLostReplies: a script runs, but its caller gets no reply and sends it again.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	lost := func(programs string, lost scripts, rules rules, promises promises) scope {
		return scope{path: changes(1, 2), programs: programs, quiet: true, lost: lost, rules: rules, promises: promises}
	}
	explorations(t, []run{
		{name: "delete", scope: lost("S0;C0", lostDelete, 0, safety|once)},
		{name: "export", scope: lost("S0;C0", lostExport, 0, safety|once)},
		{name: "import", scope: lost("S0;C0", lostImport, 0, safety|once)},
		{name: "claim", scope: lost("S0;C0", lostClaim, 0, safety|once)},
		{name: "all", scope: lost("S0;C0", lostAll, 0, safety)},
		{name: "all, if absent", large: true, scope: lost("S0;A0", lostAll, 0, safety)},
		{name: "all, reschedule", large: true, scope: lost("S0;R0", lostAll, 0, safety)},
		{name: "if absent without op", breaks: noEffect, scope: lost("S0;A0", lostPut, noOp, noEffect)},
		{name: "reschedule without op", breaks: noEffect, scope: lost("S0;R0", lostPut, noOp, noEffect)},
		// The op in the record doesn't cover a delivery between the two executions.
		{name: "put, delivered in between", breaks: once, scope: lost("S0;C0", lostPut, 0, once)},
		{name: "reschedule, delivered in between", breaks: noEffect, scope: lost("S0;R0", lostPut, 0, noEffect)},
	})
	explorations(t, large(each([]path{changes(1, 2), changes(1, 2, 1)}, []string{"S0;C0", "S0;S0", "S0;A0", "S0;R0"},
		scope{lost: lostAll, promises: safety})))
}

// TestGivingBack: a mover may give back a task only if it was certainly not imported. If
// the reply of an import was lost, the answer LATE to its repetition proves that only
// because import checks the handled set first.
func TestGivingBack(t *testing.T) {
	t.Parallel()
	late := scope{path: changes(1, 2), programs: "S0", quiet: true, late: true, stall: exported, promises: safety | once}
	again := late
	again.lost, again.stall = lostImport, 0
	explorations(t, []run{
		{name: "late", scope: late},
		{name: "late, let lapse", scope: withRules(late, noGiveBack)},
		{name: "late, imported before", scope: again},
		{name: "late, imported before, and import forgets", scope: withRules(again, importForgets), breaks: once},
		{name: "late, imported before, and import forgets, let lapse", scope: withRules(again, importForgets|noGiveBack),
			breaks: once},
	})
}

func withRules(sc scope, r rules) scope {
	sc.rules = r
	return sc
}

// TestLateCopies: a copy of a script waits in a socket, and runs after its caller has
// sent the script again or given up.
func TestLateCopies(t *testing.T) {
	t.Parallel()
	late := func(programs string, r rules) scope {
		return scope{path: changes(1, 2), programs: programs, quiet: true, movers: 1, delayed: true, rules: r,
			promises: safety}
	}
	explorations(t, []run{
		{name: "put", scope: late("S0;C0", 0)},
		{name: "put, replaced", large: true, scope: late("S0;S0", 0)},
		{name: "delete", scope: late("C0;S0", 0)},
		{name: "reschedule in a row", scope: late("S0R0", 0)},
		{name: "reschedule", large: true, scope: late("S0;R0", 0)},
		{name: "if absent", large: true, scope: late("S0;A0", 0)},
		{name: "put, repeated at once", scope: late("S0;C0", noOutlast), breaks: cancelled},
		{name: "put, repeated at once, replaced", scope: late("S0;S0", noOutlast), breaks: kept | replaced},
		{name: "delete, repeated at once", scope: late("C0;S0", noOutlast), breaks: kept},
		{name: "reschedule, repeated at once", scope: late("S0R0;S0", noOutlast), breaks: kept | replaced},
	})
	givenUp := late("S0;S0", 0)
	givenUp.crash = everywhere &^ (claimed | published)
	strict := givenUp
	strict.strict = true
	explorations(t, []run{
		{name: "given up", large: true, scope: givenUp},
		// A failed operation may take effect until its deadline, even after a later
		// operation.
		{name: "given up, effective later", breaks: kept | replaced, scope: strict},
	})
	faults := scope{delayed: true, crash: imported, stall: exported, promises: safety}
	explorations(t, large(each([]path{changes(1, 2), changes(1, 2, 1)}, []string{"S0;C0", "S0;S0", "C0;S0", "S0;A0",
		"S0;R0"}, faults)))
	explorations(t, large(each([]path{changes(1, 2)}, []string{"S0R0;C0"}, faults)))
}
