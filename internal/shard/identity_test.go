package shard

import "testing"

// TestTheDataHasOneIdentity: the first identity stays. A replacement that was confirmed for
// another identity changes nothing. One that is repeated succeeds.
func TestTheDataHasOneIdentity(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	has := func(want string) {
		t.Helper()
		got, err := c.store.Identity(c.ctx())
		c.ok(err)
		equal(t, "identity", got.String(), want)
	}
	has("")
	for _, id := range []string{"A", "B"} {
		made, err := c.store.MakeIdentity(c.ctx(), Identity{ID: id})
		c.ok(err)
		equal(t, "made", made.ID, "A")
	}
	replace := func(from Identity, want bool) {
		t.Helper()
		done, err := c.store.AcceptIdentity(c.ctx(), from, Identity{"C", []string{"A", "B"}})
		c.ok(err)
		equal(t, "replaced", done, want)
	}
	replace(Identity{}, false)
	replace(Identity{ID: "B"}, false)
	has("A")
	for range 2 {
		replace(Identity{ID: "A"}, true)
	}
	has("C replaces A B")
	there, err := c.store.Identity(c.ctx())
	c.ok(err)
	for id, want := range map[string]bool{"A": true, "B": true, "C": true, "D": false, "": false} {
		equal(t, "continues "+id, there.Continues(id), want)
	}
	equal(t, "no data continues nothing", Identity{}.Continues(""), false)
}
