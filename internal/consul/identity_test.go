package consul

import (
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestFleetsOfOnePrefixExpectTheirOwnData: each fleet has its own identity. If two
// scanners write one at the same time, the second changes nothing.
func TestFleetsOfOnePrefixExpectTheirOwnData(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	save := func(fleet, id string, index uint64, want bool) {
		t.Helper()
		ok, err := c.SaveIdentity(t.Context(), fleet, id, index)
		if err != nil || ok != want {
			t.Errorf("save %s: got %v, %v, want %v", id, ok, err, want)
		}
	}
	has := func(fleet, want string) (index uint64) {
		t.Helper()
		id, index, err := c.Identity(t.Context(), fleet)
		check.OK(t, err)
		if id != want || (index == 0) != (want == "") {
			t.Errorf("fleet %s: got %q at %d, want %q", fleet, id, index, want)
		}
		return index
	}
	has("a", "")
	save("a", "first", 0, true)
	save("a", "second", 0, false)
	save("b//c", "other", 0, true)
	save("a", "third", has("a", "first"), true)
	has("a", "third")
	has("b//c", "other")
}

// TestAskingForTheRightToWriteWritesNothing: neither a key that is there nor one that isn't
// changes.
func TestAskingForTheRightToWriteWritesNothing(t *testing.T) {
	t.Parallel()
	c := sharedConsul(t)
	ok, err := c.SaveIdentity(t.Context(), "a", "first", 0)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for _, fleet := range []string{"a", "b"} {
		if ok, err := c.MayWriteIdentity(t.Context(), fleet); err != nil || !ok {
			t.Errorf("without ACLs: %v, %v", ok, err)
		}
	}
	documents, histories, err := c.MayWriteTopics(t.Context())
	status, failed := c.MayWriteStatus(t.Context(), "doctor")
	if err != nil || failed != nil || !documents || !histories || !status {
		t.Errorf("without ACLs: %v, %v, %v, %v, %v", documents, histories, status, err, failed)
	}
	pairs, _, err := c.client.KV().List(c.prefix, nil)
	check.OK(t, err)
	if len(pairs) != 1 || string(pairs[0].Value) != "first" {
		t.Errorf("there are %d keys, want one", len(pairs))
	}
}
