package admin

import (
	"testing"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
)

// TestAVerdictIsOfThoseWhoLiveAndOfTheDocumentInQuestion: dead scanners don't count, nor do
// reports about an older document or another topic.
func TestAVerdictIsOfThoseWhoLiveAndOfTheDocumentInQuestion(t *testing.T) {
	t.Parallel()
	about := func(text string) map[string]string { return map[string]string{"orders": text} }
	trouble := func(text string) []problem.Problem {
		return []problem.Problem{problem.New(problem.TopicUnserved, "orders", text)}
	}
	other := map[string]string{"mails": "broken"}
	good := balance.Member{Alive: true, Applied: 7}
	for want, c := range map[string]struct {
		fleet []balance.Member
		final bool
	}{
		"no scanner runs, so nobody has applied it yet": {[]balance.Member{{Applied: 9},
			{Applied: 9, Errors: about("broken")}}, true},
		"applied by 1 scanner": {[]balance.Member{good, {}}, true},
		"applied by 2 scanners": {[]balance.Member{good,
			{Alive: true, Applied: 8, Errors: other, Blocked: other, Applying: []string{"mails"}}}, true},
		"applied by 1 of 2 scanners; not applied yet by 1 of 2 scanners: it has not been read yet": {
			[]balance.Member{good, {Alive: true, Applied: 6, Errors: about("older"), Blocked: about("older")}}, false,
		},
		"not applied yet by 1 scanner: consul is away": {[]balance.Member{{Alive: true, Applied: 6,
			Errors: map[string]string{"": "consul is away"}}}, false},
		"not applied yet by 1 scanner: no connection": {[]balance.Member{{Alive: true, Applied: 7,
			Applying: []string{"orders"}, Problems: trouble("no connection")}}, false},
		"refused by 1 of 2 scanners: broken; blocked by 1 of 2 scanners: 404": {
			[]balance.Member{{Alive: true, Applied: 7, Errors: about("broken")},
				{Alive: true, Applied: 7, Blocked: about("not_found"), Problems: trouble("404")}}, true,
		},
		"applied by 1 of 3 scanners; blocked by 2 of 3 scanners: 404": {
			[]balance.Member{good, {Alive: true, Applied: 7, Blocked: about("not_found"), Problems: trouble("404")},
				{Alive: true, Applied: 7, Blocked: about("not_found"), Problems: trouble("404")}}, true,
		},
	} {
		v := ReadVerdict(c.fleet, "orders", 7)
		if v.Text() != want || v.Final() != c.final {
			t.Errorf("got %q, final %v; want %q, final %v", v.Text(), v.Final(), want, c.final)
		}
	}
}
