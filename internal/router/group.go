package router

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// groupPage is how many members of a group are read at once.
const groupPage = 150

// grouped reports whether an entry is in a group.
func grouped(entries []shard.Entry) bool {
	return slices.ContainsFunc(entries, func(e shard.Entry) bool { return shard.InGroup(e.Body) })
}

// join gives the entries that are in groups marks of now, in ms, and notes them in the index. It
// returns a member and an error for each entry, which are zero for one in no group.
func (r *Router) join(ctx context.Context, now int64, entries []shard.Entry) ([]shard.Member, []error) {
	mark := shard.NewMark(now)
	members := make([]shard.Member, len(entries))
	for i, e := range entries {
		members[i] = mark.Set(e.ID, e.Body)
	}
	return members, r.topic.Join(ctx, members)
}

// Group pages through the stored tasks of a group.
type Group struct {
	router  *Router
	name    string
	members *shard.Group
	met     map[string]bool
	known   bool // the topic is
}

// Group returns the pages of a group. They have each task that stays in it
// from the first page to the last, also while the shard count changes.
func (r *Router) Group(name string) *Group {
	return &Group{router: r, name: name, members: r.topic.Group(name), met: map[string]bool{}}
}

// CancelGroup cancels the stored tasks of a group, and returns how many these were. It reads the
// IDs and not the tasks: while the shard count changes, an older version may lie at the old
// shard. Errors: of the first task that failed, task.ErrUnknownTopic, task.ErrUnavailable, or
// Redis's.
func (r *Router) CancelGroup(ctx context.Context, group string) (n int64, err error) {
	if _, err := r.refresh(ctx); err != nil {
		return 0, luascript.Unasked(err)
	}
	members, met := r.topic.Group(group), map[string]bool{}
	for {
		page, away := members.Next(ctx, groupPage)
		if away != nil || len(page) == 0 {
			return n, cmp.Or(away, err)
		}
		for _, failed := range r.CancelInGroup(ctx, unmet(page, met), group, task.DefaultMaxPayload) {
			switch {
			case failed == nil:
				n++
			case unreached(failed):
				return n, failed
			case !errors.Is(failed, task.ErrNotFound) && err == nil:
				err = failed
			}
		}
	}
}

// unmet returns the IDs of members that weren't met before.
func unmet(page []shard.Member, met map[string]bool) (ids []string) {
	for _, m := range page {
		if !met[m.ID] {
			met[m.ID] = true
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// unread reports whether nobody knows whether a task is stored.
func (g Got) unread() bool {
	return g.Err != nil && g.Task.Err == nil && !errors.Is(g.Err, task.ErrNotFound)
}

// SweepGroups looks at the next page of a part of the index of groups. It removes what crashes
// left there: members whose versions are gone, or never were stored. over says that the part
// has no more pages.
func (r *Router) SweepGroups(ctx context.Context, part *shard.Group) (swept int, over bool, err error) {
	members, err := part.Next(ctx, shard.FetchIDs)
	if err != nil || len(members) == 0 {
		return 0, true, err
	}
	left, err := r.left(ctx, members)
	if err == nil {
		err = r.topic.Leave(ctx, left)
	}
	return len(left), false, err
}

// left returns the members whose versions are gone; none while the shard count changes.
func (r *Router) left(ctx context.Context, members []shard.Member) (left []shard.Member, err error) {
	now, err := r.scripts.LatestNow(ctx)
	if err != nil {
		return nil, err
	}
	before, err := r.topic.Placement(ctx)
	if err != nil || before.Phase != shard.Stable {
		return nil, err // two shards may have versions of a task
	}
	var old []shard.Member
	var ids []string
	for _, m := range members {
		if m.Left(nil, now) {
			old, ids = append(old, m), append(ids, m.ID)
		}
	}
	for i, got := range r.getMany(ctx, ids, r.topic.FetchHeads) {
		stored := &got.Task
		switch {
		case got.unread():
			return nil, got.Err
		case errors.Is(got.Err, task.ErrNotFound):
			stored = nil
		}
		if old[i].Left(stored, now) {
			left = append(left, old[i])
		}
	}
	if after, err := r.topic.Placement(ctx); err != nil || after != before {
		return nil, err
	}
	return left, nil
}

// Next returns more tasks; none means the end. A task whose record can't be read is left out,
// for nobody knows its group. Errors: task.ErrUnknownTopic, task.ErrUnavailable, or Redis's.
func (g *Group) Next(ctx context.Context) (page []shard.Stored, err error) {
	if !g.known {
		if _, err := g.router.refresh(ctx); err != nil {
			return nil, luascript.Unasked(err)
		}
		g.known = true
	}
	for len(page) == 0 {
		members, err := g.members.Next(ctx, groupPage)
		if err != nil || len(members) == 0 {
			return nil, err
		}
		for _, got := range g.router.GetMany(ctx, unmet(members, g.met)) {
			switch {
			case got.unread():
				return nil, got.Err
			case got.Err == nil && got.Task.Group == g.name:
				page = append(page, got.Task)
			}
		}
	}
	return page, nil
}
