package luascript

import (
	"errors"
	"testing"

	"github.com/duefleet/duefleet/task"
)

// TestAReplyOfAnotherShapeIsAnErrorThatNamesItsScript: for each way to read a reply, one
// that fits, and one that doesn't.
func TestAReplyOfAnotherShapeIsAnErrorThatNamesItsScript(t *testing.T) {
	t.Parallel()
	reply := func(value any) Reply { return Reply{script: "claim", value: value} }
	integer := func(r Reply) error { _, err := r.Int(); return err }
	text := func(r Reply) error { _, err := r.Text(); return err }
	pair := func(r Reply) error {
		l := r.Values()
		l.Text()
		l.Int()
		return l.Err()
	}
	optional := func(r Reply) error {
		l := r.Values()
		l.TextIf()
		return l.Err()
	}
	for name, row := range map[string]struct {
		read  func(Reply) error
		value any
		want  string
	}{
		"an integer":         {integer, int64(1), ""},
		"no integer":         {integer, "1", "script claim answered a text as element 1, not an integer"},
		"nil for an integer": {integer, nil, "script claim answered nil as element 1, not an integer"},
		"a text":             {text, "a", ""},
		"no text":            {text, int64(1), "script claim answered an integer as element 1, not a text"},
		"two elements":       {pair, []any{"a", int64(1)}, ""},
		"one too few":        {pair, []any{"a"}, "script claim answered 1 elements; an integer is missing"},
		"the first is another": {pair, []any{int64(1), int64(1)},
			"script claim answered an integer as element 1, not a text"},
		"the last is another":  {pair, []any{"a", nil}, "script claim answered nil as element 2, not an integer"},
		"a list in a list":     {pair, []any{[]any{}}, "script claim answered a list as element 1, not a text"},
		"no list":              {pair, "a", "script claim answered a text, not a list"},
		"nil for a list":       {pair, nil, "script claim answered nil, not a list"},
		"a text that may lack": {optional, []any{"a"}, ""},
		"and lacks":            {optional, []any{nil}, ""},
		"and is a number":      {optional, []any{int64(1)}, "script claim answered an integer as element 1, not a text"},
	} {
		err := row.read(reply(row.value))
		if got := errText(err); got != row.want {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestAReplyOfACallThatFailedIsItsError, except that a master's answer is read that too few
// replicas have.
func TestAReplyOfACallThatFailedIsItsError(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	r := Reply{script: "claim", value: []any{"ok", int64(7)}, err: refused}
	l := r.Values()
	if l.Text(); !errors.Is(l.Err(), refused) || l.Left() != 0 {
		t.Errorf("got %v, %d elements left", l.Err(), l.Left())
	}
	if _, err := r.Int(); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	r.err = &ReplicasError{Have: 0, Want: 1}
	l = r.Values()
	status, n := l.Text(), l.Int()
	if status != "ok" || n != 7 || l.Err() != nil || !errors.Is(r.Err(), task.ErrReplicas) {
		t.Errorf("got %q, %d, %v, %v", status, n, l.Err(), r.Err())
	}
}

// TestARefusalInsideAScriptIsNamed, with the words of Redis 8.0. The other tests of this
// package see the words of 7.0.
func TestARefusalInsideAScriptIsNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ERR ACL failure in script: User shop has no permissions to run the 'zrem' command script: " +
			"fc6b21d5211661dd5df205822daa8e1f53f631b7, on @user_script:81.": "NOPERM User shop has no permissions to run the " +
			"'zrem' command",
		"ERR ACL failure in script: No permissions to access a key script: 966ad4efa843a690de264a3054e7df37e195bc82, on " +
			"@user_script:1.": "NOPERM No permissions to access a key",
		"ERR ACL failure in script: No permissions to access a key": "NOPERM No permissions to access a key",
	} {
		if err := (&Client{}).explain(deniedError(text)); err.Error() != want || !Denied(err) || !Definite(err) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}
