package machine_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"
)

// defect is a change to a script, or to the order in which a consumer does what it
// does, that breaks a promise.
type defect struct {
	name, script, from, to string
	order                  order
}

// order of a consumer's steps that is wrong.
type order string

const (
	ackFirst  order = "the ack before the retry"
	doneFirst order = "done before the retry"
)

var none = defect{}

// ofConsumers tells whether it is of what consumers do.
func (d defect) ofConsumers() bool {
	switch d.script {
	case "", "recall", "follow", "again", "older", "done", "note":
		return true
	}
	return false
}

// defects are rules of the scripts, each left out in turn. Those that take a rare
// interleaving to be missed are package model's, which tries every interleaving
// (TestEveryRuleIsNeeded).
var defects = []defect{
	{
		name: "settle without a look at the token", script: "settle",
		from: "if scores[i] and tonumber(scores[i]) == tonumber(ARGV[i * 2 - 1]) then", to: "if scores[i] then",
	},
	{
		name: "release without a look at the token", script: "release",
		from: "and tonumber(score) == tonumber(ARGV[i]) then", to: "then",
	},
	{
		name: "claim takes what is leased", script: "claim",
		from: "redis.call('ZRANGEBYSCORE', due, -now, '(0', 'LIMIT', 0, limit)", to: "redis.call('ZRANGEBYSCORE', due, '-inf', '(0', 'LIMIT', 0, limit)",
	},
	{
		name: "claim forgets the score from before a loan", script: "claim",
		from: "if before > now then return score(id, before) end", to: "",
	},
	{
		name: "adopt at once, whatever the score was", script: "adopt",
		from: "score == 'inf' and '+inf' or score", to: "0",
	},
	{
		name: "put in whatever epoch", script: "put",
		from: "if moved then return moved end", to: "",
	},
	{
		name: "put does not know its own work", script: "put",
		from: "if record and string.sub(record, 14, 19) == op then", to: "if false then",
	},
	{
		name: "delete in whatever epoch", script: "delete",
		from: "if moved then return moved end", to: "",
	},
	{
		name: "delete what was leased leaves it", script: "delete",
		from: "redis.call('ZREM', KEYS[1], id)", to: "if tonumber(score) >= 0 then redis.call('ZREM', KEYS[1], id) end",
	},
	{
		name: "read in whatever epoch", script: "read",
		from: "return {'moved', seen}", to: "",
	},
	{
		name: "look forgets what it met", script: "look",
		from: "if dirty == '0' then clean = 1 end", to: "clean = 1",
	},
	{
		name: "recall without a look at what is done", script: "recall",
		from: "if ARGV[3] == '1' and done and done ~= '0' then return 'done' end", to: "",
	},
	{
		name: "recall without a look at the past", script: "recall",
		from: "if root ~= tonumber(due) and over(root) then return 'over' end", to: "",
	},
	{
		name: "recall takes another's chain for its own", script: "recall",
		from: "tonumber(of == scheduled and root or due)", to: "tonumber(due)",
	},
	{
		name: "recall does not note which version a handler has", script: "recall",
		from: "raise('newest', root)", to: "",
	},
	{
		name: "a retry is allowed without a look at the past", script: "follow",
		from: "if over(root) then return {'over'} end", to: "",
	},
	{
		name: "a retry does not belong to its chain", script: "follow",
		from: "redis.call('HSET', past, 'r' ..", to: "redis.call('HSET', past, 'x' ..",
	},
	{
		name: "a retry does not look for a wish", script: "follow",
		from: "if p[1] and", to: "if false and",
	},
	{
		name: "a wish is for all retries to come", script: "follow",
		from: "tonumber(p[1]) > tonumber(due)", to: "tonumber(p[1]) > root",
	},
	{
		name: "a cancel leaves no note", script: "note",
		from: "raise('cancelled', tonumber(ARGV[1]))", to: "",
	},
	{
		name: "a move leaves no note", script: "note",
		from: "redis.call('HSET', past, 'wished', ARGV[1], 'wish', ARGV[2])", to: "",
	},
	{
		name: "a cancel does not see a consumer's past", script: "note",
		from: "if ARGV[1] == '' then return there end", to: "if ARGV[1] == '' then return 0 end",
	},
	{
		name: "a retry replaces whatever is stored", script: "again",
		from: "if newer or not same and not behind then", to: "if false then",
	},
	{
		name: "a retry in whatever epoch", script: "again",
		from: "if moved then return moved end", to: "",
	},
	{
		name: "what is done is not noted", script: "done",
		from: "redis.call('HSET', past, ARGV[1], now)", to: "",
	},
	{
		name: "a past is kept too short", script: "done",
		from: "keep(window)", to: "redis.call('HSET', 'machine:ends', past, now + 1000)",
	},
	{
		name: "a retry of an older version is left as it is", script: "older",
		from: "and 1 or 0", to: "and 0 or 0",
	},
	{
		name: "what was stored since is taken for older", script: "older",
		from: "root_of(ARGV[3], ARGV[4]) < math.min(tonumber(ARGV[3]), root_of(ARGV[1], ARGV[2])) and 1 or 0", to: "1",
	},
	{name: string(ackFirst), order: ackFirst},
	{name: string(doneFirst), order: doneFirst},
}

// enough is how many checks a defect may go unnoticed: the last is found by the
// 85th.
const enough = 400

// TestADefectBreaksAPromise tries each defect: a test that can't fail holds nothing.
func TestADefectBreaksAPromise(t *testing.T) {
	sound := client(t, none)
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			rdb := client(t, d)
			for seed := range enough {
				err := attempt(t.Context(), rdb, seed, d.ofConsumers())
				if err == nil {
					continue
				}
				t.Logf("found by check %d: %v", seed+1, err)
				if err := attempt(t.Context(), sound, seed, d.ofConsumers()); err != nil {
					t.Errorf("found without the defect: %v", err)
				}
				return
			}
			t.Errorf("not found by %d checks", enough)
		})
	}
}

// attempt is one check, as rapid would draw it from a seed, and answers what it
// found.
func attempt(ctx context.Context, rdb linked, seed int, consuming bool) (found error) {
	type violation struct{ error }
	checks := rapid.Custom(func(t *rapid.T) (err error) {
		defer func() {
			switch p := recover().(type) {
			case nil:
			case violation:
				err = p.error
			default:
				panic(p)
			}
		}()
		property(ctx, t, rdb.Client, rdb.link, consuming, func(err error) { panic(violation{err}) })
		return nil
	})
	return checks.Example(seed)
}
