package amqptypes

import (
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
)

// TestHeadersThereAndBack: values at every depth have the types of the other side, and
// nothing is shared.
func TestHeadersThereAndBack(t *testing.T) {
	t.Parallel()
	at := time.Unix(1796119200, 0).UTC()
	table := amqp.Table{
		"b": int8(-1), "S": "text", "V": nil, "T": at, "x": []byte{0, 255}, "D": amqp.Decimal{Scale: 2, Value: -314},
		"F": amqp.Table{"in": amqp.Table{"D": amqp.Decimal{Value: 1}}},
		"A": []any{int32(1), amqp.Table{"k": "v"}, []any{amqp.Decimal{Scale: 1}}},
	}
	headers := map[string]any{
		"b": int8(-1), "S": "text", "V": nil, "T": at, "x": []byte{0, 255}, "D": amqpmsg.Decimal{Scale: 2, Value: -314},
		"F": map[string]any{"in": map[string]any{"D": amqpmsg.Decimal{Value: 1}}},
		"A": []any{int32(1), map[string]any{"k": "v"}, []any{amqpmsg.Decimal{Scale: 1}}},
	}
	got := Headers(table)
	if !reflect.DeepEqual(got, headers) {
		t.Errorf("headers %#v", got)
	}
	back := Table(got, 3)
	if !reflect.DeepEqual(back, table) {
		t.Errorf("table %#v", back)
	}
	got["A"].([]any)[0], back["F"].(amqp.Table)["in"] = 2, 2
	if !reflect.DeepEqual(table["A"].([]any)[0], int32(1)) || reflect.DeepEqual(table["F"], back["F"]) {
		t.Error("they share an array or a table")
	}
}
