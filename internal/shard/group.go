package shard

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// A body of format 4 begins with the group of its task. A body of another format follows.
//
//	offset  bytes
//	0       1      4
//	1       8      mark: when the call began, Redis s (4 bytes), and 4 random bytes
//	9       1+n    group
//
// The index of a topic's groups is apart from the shards, so that it stays in place while M
// changes. It has groupKeys sorted sets, and a group is in the set of its hash. All scores are
// 0, so that Redis keeps the members in the order of their bytes:
//
//	1+n    group
//	n      ID
//	8      mark
//
// A member is added before its task is stored, and removed after the task went. So each
// stored version has a member with its mark, and no other version has the same. The record
// decides: a member whose version isn't stored means nothing. A crash may leave such a
// member, which a sweep removes later.
const (
	groupFormat = 4
	groupKeys   = 64
	markSize    = 8
	groupHead   = 2 + markSize
	// sweepAfter is how old a member must be, in ms, before a sweep removes it. Until then
	// its task may still be stored: scripts refuse marks that are half as old.
	sweepAfter = 600_000
)

// withGroup returns the body of a task in a group, whose other body is given. Its mark is
// set when it is stored.
func withGroup(group string, body []byte) []byte {
	b := make([]byte, groupHead, groupHead+len(group)+len(body))
	b[0], b[groupHead-1] = groupFormat, byte(len(group))
	return append(append(b, group...), body...)
}

// decodeGroup reads the group before the other body.
func decodeGroup(in *reader, r *Record) {
	in.length(1) // the format
	r.mark = Mark(in.textToKeep(markSize))
	n := in.length(1)
	in.short = in.short || n == 0 // nobody writes that
	r.Group = in.textToKeep(n)
}

// Member is an entry of the index of groups: one version of a task.
type Member struct {
	Group, ID string
	mark      Mark
}

// Text returns the member as the index holds it.
func (m Member) Text() string { return groupPrefix(m.Group) + m.ID + string(m.mark) }

// groupPrefix begins all members of a group, and no others.
func groupPrefix(group string) string { return string([]byte{byte(len(group))}) + group }

// Member returns the record's member in the index; zero if its task is in no group.
func (r *Record) Member() Member {
	if r.Group == "" {
		return Member{}
	}
	return Member{r.Group, r.ID, r.mark}
}

// readMember reads what the index holds; false: it is no member.
func readMember(text string) (Member, bool) {
	if len(text) == 0 || len(text) < 1+int(text[0])+1+markSize {
		return Member{}, false
	}
	at, end := 1+int(text[0]), len(text)-markSize
	return Member{Group: text[1:at], ID: text[at:end], mark: Mark(text[end:])}, true
}

// readLeft reads the rest of a reply: the versions that went, each with its number from 1, and
// its mark and group. idOf returns the ID of a task by its index, below n.
func readLeft(rest *luascript.Values, n int, idOf func(i int) string) (went []Member) {
	for rest.Left() > 0 {
		at, member := int(rest.Int())-1, rest.Text()
		if at >= 0 && at < n && len(member) > markSize {
			went = append(went, Member{Group: member[markSize:], ID: idOf(at), mark: Mark(member[:markSize])})
		}
	}
	return went
}

// groupKey returns the key of the index that has a group.
func (t *Topic) groupKey(n int) string { return t.Shard(n).group() }

func groupKeyOf(group string) int { return int(xxhash.Sum64String(group) % groupKeys) } //nolint:gosec // below groupKeys

// NewMark returns a mark for versions that are about to be stored. now is Redis's time in ms.
func NewMark(now int64) Mark {
	b := make([]byte, markSize)
	_, _ = rand.Read(b[4:])                                 // never fails: crypto/rand
	binary.BigEndian.PutUint32(b, uint32(max(now, 0)/1000)) //nolint:gosec // until the year 2106
	return Mark(b)
}

// Mark sets versions of tasks in groups apart from all others of the same IDs.
type Mark string

// Set gives a body its mark, in place, and returns the version's member in the index. For a task
// in no group it is zero.
func (m Mark) Set(id string, body []byte) Member {
	if !InGroup(body) {
		return Member{}
	}
	copy(body[1:], m)
	return Member{string(body[groupHead : groupHead+int(body[groupHead-1])]), id, m}
}

// InGroup reports whether a body is of a task in a group.
func InGroup(body []byte) bool { return len(body) > groupHead && body[0] == groupFormat }

// byKey returns the members for each key of the index, by their indexes.
func byKey(members []Member) map[int][]int {
	by := map[int][]int{}
	for i, m := range members {
		if m.Group != "" {
			at := groupKeyOf(m.Group)
			by[at] = append(by[at], i)
		}
	}
	return by
}

// Join adds members to the index, before their versions are stored. It returns an error for
// each, nil for zero Members. In a Redis Cluster it waits for no replicas.
func (t *Topic) Join(ctx context.Context, members []Member) []error {
	errs := make([]error, len(members))
	by := byKey(members)
	if len(by) == 0 {
		return errs
	}
	added := map[int]*redis.IntCmd{}
	_, _ = t.store.Client(ctx).Pipelined(ctx, func(p redis.Pipeliner) error { // each command carries its own error
		for at, of := range by {
			some := make([]redis.Z, len(of))
			for n, i := range of {
				some[n].Member = members[i].Text()
			}
			added[at] = p.ZAdd(ctx, t.groupKey(at), some...)
		}
		return nil
	})
	for at, cmd := range added {
		for _, i := range by[at] {
			errs[i] = wrapIf(indexed(cmd.Err()), "note the group of task %q of topic %s", members[i].ID, t.name)
		}
	}
	return errs
}

// rejoin gives bodies of tasks in groups new marks, and notes them in the index. It comes before
// a call is repeated: what its first execution stored may have been removed, with the member. It
// reports whether the index has all of them. The old members stay, for a sweep.
func (t *Topic) rejoin(ctx context.Context, ids []string, bodies ...[]byte) bool {
	now, err := t.Now(ctx)
	if err != nil {
		return false
	}
	mark := NewMark(now)
	members := make([]Member, len(ids))
	for i, id := range ids {
		members[i] = mark.Set(id, bodies[i])
	}
	return errors.Join(t.Join(ctx, members)...) == nil
}

// indexed explains an error of a call about the index. Such a call stores no task.
func indexed(err error) error {
	if Denied(err) {
		err = fmt.Errorf("%w; give the user the rights of deploy/redis, which have the keys *:group since 0.2.0", err)
	}
	return luascript.Unasked(luascript.Explain(err))
}

// Leave removes members whose versions went from the index. After an error some of them stay,
// for a sweep.
func (t *Topic) Leave(ctx context.Context, members []Member) error {
	by := byKey(members)
	if len(by) == 0 {
		return nil
	}
	_, err := t.store.Client(ctx).Pipelined(ctx, func(p redis.Pipeliner) error {
		for at, of := range by {
			some := make([]any, len(of))
			for n, i := range of {
				some[n] = members[i].Text()
			}
			p.ZRem(ctx, t.groupKey(at), some...)
		}
		return nil
	})
	return wrapIf(indexed(err), "remove from the index of groups of topic %s", t.name)
}

// Group pages through the members of a group in the index.
type Group struct {
	topic *Topic
	key   string
	from  string
	below string
}

// Group returns the pages of a group.
func (t *Topic) Group(group string) *Group {
	prefix := groupPrefix(group)
	return &Group{topic: t, key: t.groupKey(groupKeyOf(group)), from: "[" + prefix, below: "(" + after(prefix)}
}

// after returns the first text that comes after all that begin with a prefix, whose last byte
// is no 0xff.
func after(prefix string) string {
	last := len(prefix) - 1
	return prefix[:last] + string([]byte{prefix[last] + 1})
}

// Next returns up to count more members; none means the end.
func (g *Group) Next(ctx context.Context, count int64) ([]Member, error) {
	texts, err := g.topic.store.Client(ctx).ZRangeArgs(ctx, redis.ZRangeArgs{Key: g.key, Start: g.from, Stop: g.below,
		ByLex: true, Count: count}).Result()
	if err != nil {
		return nil, wrapIf(indexed(err), "read the index of groups of topic %s", g.topic.name)
	}
	members := make([]Member, 0, len(texts))
	for _, text := range texts {
		g.from = "(" + text
		if m, ok := readMember(text); ok {
			members = append(members, m)
		}
	}
	return members, nil
}

// indexedFrom returns the numbers, from n on, of the keys of the index that exist.
func (t *Topic) indexedFrom(ctx context.Context, n int) (there []int, err error) {
	asked := map[int]*redis.IntCmd{}
	_, err = t.store.Client(ctx).Pipelined(ctx, func(p redis.Pipeliner) error {
		for at := n; at < groupKeys; at++ {
			asked[at] = p.Exists(ctx, t.groupKey(at))
		}
		return nil
	})
	if err != nil {
		return nil, wrapIf(indexed(err), "look for the index of groups of topic %s", t.name)
	}
	for at, cmd := range asked {
		if cmd.Val() > 0 {
			there = append(there, at)
		}
	}
	return there, nil
}

// BeginSweep reports whether the caller is to sweep the index of groups. Nobody else is for
// the time hold.
func (t *Topic) BeginSweep(ctx context.Context, hold time.Duration) (bool, error) {
	mine, err := t.store.Client(ctx).SetNX(ctx, t.sweepKey(), "1", hold).Result()
	return mine, wrapIf(err, "begin to sweep the groups of topic %s", t.name)
}

// Index returns the pages of the whole index.
func (t *Topic) Index() []*Group {
	all := make([]*Group, groupKeys)
	for at := range all {
		all[at] = &Group{topic: t, key: t.groupKey(at), from: "-", below: "+"}
	}
	return all
}

// Left reports whether a member's version is gone. s is the stored task of its ID; nil: there
// is none. now is Redis's time in ms. It is false as long as the version may still be stored.
func (m Member) Left(s *Stored, now int64) bool {
	began := int64(binary.BigEndian.Uint32([]byte(m.mark))) * 1000
	return began+sweepAfter < now && (s == nil || s.Err == nil && s.Member() != m)
}
