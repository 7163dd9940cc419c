package shard

import "testing"

func TestAPassThroughACleanShardProvesIt(t *testing.T) {
	t.Parallel()
	c := newCorner(t, 1)
	at := c.pass()
	equal(t, "at first", at, Pass{"1", 0, false})
	at = c.step(at, 17, false)
	equal(t, "after a step", at, Pass{"1", 17, false})
	equal(t, "for another mover", c.pass(), at)
	end := c.step(at, 0, false)
	equal(t, "at the end", end, Pass{"2", 0, true})
	equal(t, "asked again", c.pass(), Pass{"2", 0, false})
}

func TestAPassThatMetSomethingProvesNothing(t *testing.T) {
	t.Parallel()
	c := newCorner(t, 1)
	at := c.step(c.pass(), 17, true)
	at = c.step(at, 5, false)
	end := c.step(at, 0, false)
	equal(t, "at the end", end, Pass{"2", 0, false})
	equal(t, "the next, of one step", c.step(end, 0, false), Pass{"3", 0, true})
	equal(t, "one that met something at its end", c.step(c.pass(), 0, true), Pass{"4", 0, false})
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
	equal(t, "the second time", c.step(at, 0, false), Pass{"2", 0, false})
	equal(t, "of the pass before", c.step(start, 0, false), Pass{"2", 0, false})
}

func TestANewPlacementBeginsAPassOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newCorner(t, 1)
	at := c.step(c.pass(), 17, true)
	c.begin(2)
	equal(t, "under the new placement", c.pass(), Pass{"1", 0, false})
	equal(t, "a step from before", c.step(at, 30, true), Pass{"1", 0, false})
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
