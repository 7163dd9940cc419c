package shard

import "testing"

func TestAPassThroughACleanShardProvesIt(t *testing.T) {
	t.Parallel()
	c := newCorner(t, 1)
	at := c.pass()
	equal(t, "at first", standing(at), Pass{Count: 1, Cursor: 0, Clean: false})
	at = c.step(at, 17, false)
	equal(t, "after a step", standing(at), Pass{Count: 1, Cursor: 17, Clean: false})
	equal(t, "for another mover", c.pass(), at)
	end := c.step(at, 0, false)
	equal(t, "at the end", standing(end), Pass{Count: 2, Cursor: 0, Clean: true})
	equal(t, "asked again", standing(c.pass()), Pass{Count: 2, Cursor: 0, Clean: false})
}

func TestAPassThatMetSomethingProvesNothing(t *testing.T) {
	t.Parallel()
	c := newCorner(t, 1)
	at := c.step(c.pass(), 17, true)
	at = c.step(at, 5, false)
	end := c.step(at, 0, false)
	equal(t, "at the end", standing(end), Pass{Count: 2, Cursor: 0, Clean: false})
	equal(t, "the next, of one step", standing(c.step(end, 0, false)), Pass{Count: 3, Cursor: 0, Clean: true})
	equal(t, "one that met something at its end", standing(c.step(c.pass(), 0, true)), Pass{Count: 4, Cursor: 0, Clean: false})
}

func TestAStepTakenTwiceAdvancesOnce(t *testing.T) {
	t.Parallel()
	c := newCorner(t, 1)
	start := c.pass()
	at := c.step(start, 17, false)
	equal(t, "the second time", c.step(start, 17, false), at)
	equal(t, "a slower mover's", c.step(start, 99, true), at)
	end := c.step(at, 0, false)
	equal(t, "clean", end.Clean, true)
	equal(t, "the second time", standing(c.step(at, 0, false)), Pass{Count: 2, Cursor: 0, Clean: false})
	equal(t, "of the pass before", standing(c.step(start, 0, false)), Pass{Count: 2, Cursor: 0, Clean: false})
}

func TestANewPlacementBeginsAPassOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newCorner(t, 1)
	at := c.step(c.pass(), 17, true)
	c.begin(2)
	equal(t, "under the new placement", standing(c.pass()), Pass{Count: 1, Cursor: 0, Clean: false})
	equal(t, "a step from before", standing(c.step(at, 30, true)), Pass{Count: 1, Cursor: 0, Clean: false})
}

func TestCursorsOf64BitsArePassedOnWhole(t *testing.T) {
	t.Parallel()
	c := newCorner(t, 1)
	const far = 1<<63 + 12345
	equal(t, "cursor", c.step(c.pass(), far, false).Cursor, far)
	equal(t, "cursor", c.pass().Cursor, far)
}

func (c *corner) pass() Pass {
	c.t.Helper()
	at, err := c.Pass(c.ctx(), 0, c.p)
	c.ok(err)
	return at
}

func (c *corner) step(from Pass, to uint64, dirty bool) Pass {
	c.t.Helper()
	at, err := c.Look(c.ctx(), 0, c.p, from, to, dirty)
	c.ok(err)
	return at
}

// standing is where a pass stands, without the name of the server process.
func standing(p Pass) Pass {
	p.Number = ""
	return p
}
