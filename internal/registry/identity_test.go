package registry_test

import (
	"testing"

	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/test/check"
)

// TestTheDataHasOneIdentity: the first identity stays. A replacement that was confirmed for
// another identity changes nothing. One that is repeated succeeds.
func TestTheDataHasOneIdentity(t *testing.T) {
	t.Parallel()
	c := newSandbox(t)
	has := func(want string) {
		t.Helper()
		got, err := c.Identity(c.t.Context())
		check.OK(c.t, err)
		check.Equal(t, "identity", got.String(), want)
	}
	has("")
	for _, id := range []string{"A", "B"} {
		made, err := c.MakeIdentity(c.t.Context(), registry.Identity{ID: id})
		check.OK(c.t, err)
		check.Equal(t, "made", made.ID, "A")
	}
	replace := func(from registry.Identity, want bool) {
		t.Helper()
		done, err := c.AcceptIdentity(c.t.Context(), from, registry.Identity{"C", []string{"A", "B"}})
		check.OK(c.t, err)
		check.Equal(t, "replaced", done, want)
	}
	replace(registry.Identity{}, false)
	replace(registry.Identity{ID: "B"}, false)
	has("A")
	for range 2 {
		replace(registry.Identity{ID: "A"}, true)
	}
	has("C replaces A B")
	there, err := c.Identity(c.t.Context())
	check.OK(c.t, err)
	for id, want := range map[string]bool{"A": true, "B": true, "C": true, "D": false, "": false} {
		check.Equal(t, "continues "+id, there.Continues(id), want)
	}
	check.Equal(t, "no data continues nothing", registry.Identity{}.Continues(""), false)
}
