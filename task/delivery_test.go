package task

import (
	"errors"
	"testing"
	"time"
)

// TestADeliveryOfATestKeepsTheRulesOfNextSteps, so that a test of a handler fails where
// production would.
func TestADeliveryOfATestKeepsTheRulesOfNextSteps(t *testing.T) {
	t.Parallel()
	var asked time.Time
	d := NewDelivery(Task{ID: "a"}, func(due time.Time, _ []byte) error { asked = due; return nil })
	large := make([]byte, DefaultMaxPayload+1)
	tomorrow := time.Now().Add(24 * time.Hour)
	for name, row := range map[string]struct {
		err   error
		field string
	}{
		"payload":      {d.Next(tomorrow, large), "payload"},
		"payload When": {d.NextWhen(In(time.Hour), large), "payload"},
		"no time":      {d.Next(time.Time{}, nil), "due"},
		"no When":      {d.NextWhen(When{}, nil), "due"},
		"101 years":    {d.Next(tomorrow.AddDate(101, 0, 0), nil), "due"},
		"small limit":  {d.WithMaxPayload(1).Next(tomorrow, []byte("ab")), "payload"},
	} {
		var rule *RuleError
		if !errors.As(row.err, &rule) || rule.Field != row.field {
			t.Errorf("%s: got %v", name, row.err)
		}
	}
	if !asked.IsZero() {
		t.Errorf("a step that breaks a rule was asked for, due %v", asked)
	}
	if err := d.WithMaxPayload(MaxMaxPayload).Next(tomorrow, large); err != nil || !asked.Equal(tomorrow) {
		t.Errorf("got %v, due %v", err, asked)
	}
	before := time.Now()
	if err := d.NextWhen(In(time.Hour), nil); err != nil || asked.Before(before.Add(time.Hour)) ||
		asked.After(time.Now().Add(time.Hour)) {
		t.Errorf("got %v, due %v", err, asked)
	}
	if err := NewDelivery(Task{}, nil).NextWhen(Now(), nil); !errors.Is(err, ErrNoNext) {
		t.Errorf("got %v", err)
	}
}
