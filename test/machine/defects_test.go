package machine_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"
)

// defect is a change to a script that breaks a promise.
type defect struct{ name, script, from, to string }

var none = defect{}

// defects are rules of the scripts, each left out in turn. Those that take a rare
// interleaving to be missed are package model's, which tries every interleaving
// (TestEveryRuleIsNeeded).
var defects = []defect{
	{
		"settle without a look at the token", "settle",
		"if score and (score == token or tonumber(score) == tonumber(token)) then", "if score then",
	},
	{
		"release without a look at the token", "release",
		"and tonumber(score) == tonumber(ARGV[i]) then", "then",
	},
	{
		"claim takes what is leased", "claim",
		"redis.call('ZRANGEBYSCORE', due, -now, '(0', 'LIMIT', 0, limit)", "redis.call('ZRANGEBYSCORE', due, '-inf', '(0', 'LIMIT', 0, limit)",
	},
	{
		"claim forgets the score from before an export", "claim",
		"if before > now then return score(id, before) end", "",
	},
	{
		"import at once, whatever the score was", "import",
		"score == 'inf' and '+inf' or score", "0",
	},
	{
		"put in whatever epoch", "put",
		"if moved then return moved end", "",
	},
	{
		"put does not know its own work", "put",
		"if record and string.sub(record, 14, 19) == op then", "if false then",
	},
	{
		"delete in whatever epoch", "delete",
		"if moved then return moved end", "",
	},
	{
		"delete what was leased leaves it", "delete",
		"redis.call('ZREM', KEYS[1], id)", "if tonumber(score) >= 0 then redis.call('ZREM', KEYS[1], id) end",
	},
	{
		"read in whatever epoch", "read",
		"return {'moved', seen}", "",
	},
	{
		"scan_pass forgets what it met", "scan_pass",
		"if dirty == '0' then clean = 1 end", "clean = 1",
	},
}

// enough is how many checks a defect may go unnoticed: the last is found by the
// 85th.
const enough = 400

// TestADefectBreaksAPromise tries each defect: a test that can't fail holds nothing.
func TestADefectBreaksAPromise(t *testing.T) {
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			rdb := client(t, d)
			for seed := range enough {
				if err := attempt(t.Context(), rdb, seed); err != nil {
					t.Logf("found by check %d: %v", seed+1, err)
					return
				}
			}
			t.Errorf("not found by %d checks", enough)
		})
	}
}

// attempt is one check, as rapid would draw it from a seed, and returns what it
// found.
func attempt(ctx context.Context, rdb linked, seed int) (found error) {
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
		property(ctx, t, rdb.Client, rdb.link, func(err error) { panic(violation{err}) })
		return nil
	})
	return checks.Example(seed)
}
