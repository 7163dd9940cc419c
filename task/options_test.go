package task_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/task"
)

// TestOptionsKeepTheirLimits: options at a limit pass, and an error about one beyond it
// names the field.
func TestOptionsKeepTheirLimits(t *testing.T) {
	t.Parallel()
	most := strings.Repeat("k", 255)
	for name, o := range map[string]task.Options{
		"none":    {},
		"largest": {RoutingKey: most, Priority: 255, Expiration: task.MaxExpiration, CorrelationID: most, ReplyTo: most},
		"least":   {Expiration: time.Millisecond},
		"cut":     {Expiration: 1500 * time.Microsecond},
	} {
		if err := task.CheckOptions(o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for field, all := range map[string][]task.Options{
		"routing_key":    {{RoutingKey: most + "k"}, {RoutingKey: "\xff"}},
		"correlation_id": {{CorrelationID: most + "k"}, {CorrelationID: "\xff"}},
		"reply_to":       {{ReplyTo: most + "k"}, {ReplyTo: "\xff"}, {ReplyTo: "amq.rabbitmq.reply-to"}},
		"expiration": {{Expiration: time.Millisecond - 1}, {Expiration: -time.Second},
			{Expiration: task.MaxExpiration + 1}},
	} {
		for _, o := range all {
			var rule *task.RuleError
			if err := task.CheckOptions(o); !errors.As(err, &rule) || rule.Field != field {
				t.Errorf("%s: %+v: got %v", field, o, err)
			}
		}
	}
}
