package machine_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"
)

// defect is a change to a script that breaks a promise.
type defect struct{ name, script, from, to string }

var none = defect{}

// defects leave out the rules of the scripts, one rule each. Rules that only a rare
// interleaving needs are tested in package model, which tries every interleaving
// (TestEveryRuleIsNeeded).
var defects = []defect{
	{
		"settle ignores the token", "settle",
		"if score and (score == token or tonumber(score) == tonumber(token)) then", "if score then",
	},
	{
		"release ignores the token", "release",
		"and tonumber(score) == tonumber(ARGV[i]) then", "then",
	},
	{
		"advance leaves out a run", "advance",
		"r.due, r.attempts, r.note, r.noted, r.prior = next,",
		"r.due, r.attempts, r.note, r.noted, r.prior = next + 3600000,",
	},
	{
		"claim takes leased tasks", "claim",
		"lease_end <= now then\n  ids = redis.call('ZRANGEBYSCORE', due, '-' .. until_now,",
		"lease_end < math.huge then\n  ids = redis.call('ZRANGEBYSCORE', due, '-inf',",
	},
	{
		"claim forgets the score from before an export", "claim",
		"if before > now then score = before end", "",
	},
	{
		"import makes every task due at once", "import",
		"score == 'inf' and '+inf' or score", "0",
	},
	{
		"put ignores the epoch", "put",
		"if moved then return moved end", "",
	},
	{
		"put doesn't recognise its own record", "put",
		"if record and string.sub(record, 14, 19) == op then", "if false then",
	},
	{
		"delete ignores the epoch", "delete",
		"if moved then return moved end", "",
	},
	{
		"delete leaves a leased task", "delete",
		"redis.call('ZREM', KEYS[1], id)",
		"tonumber(redis.call('ZSCORE', KEYS[1], id) or 0) >= 0 and redis.call('ZREM', KEYS[1], id) or 1",
	},
	{
		"read ignores the epoch", "read",
		"return {'moved', seen}", "",
	},
	{
		"scan_pass forgets that it met misplaced tasks", "scan_pass",
		"if dirty == '0' then clean = 1 end", "clean = 1",
	},
}

// enough is the number of checks in which each defect must be found. The hardest one is
// found by check 85.
const enough = 400

// TestADefectBreaksAPromise tries each defect: it proves that the checks can fail.
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

// attempt runs one check, drawn by rapid from a seed, and returns the violation it found.
func attempt(ctx context.Context, rdb interceptedClient, seed int) (found error) {
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
		property(ctx, t, rdb.Client, rdb.interceptor, func(err error) { panic(violation{err}) })
		return nil
	})
	return checks.Example(seed)
}
