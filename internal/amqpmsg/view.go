package amqpmsg

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/duefleet/duefleet/task"
)

// View is a message in JSON, as commands and logs show it. It lacks the payload.
type View struct {
	RoutingKey string           `json:"routing_key"`
	Properties PropertiesView   `json:"properties"`
	Headers    map[string]Value `json:"headers"`
}

// PropertiesView are the properties that a message has.
type PropertiesView struct {
	ContentType     string `json:"content_type,omitempty"`
	ContentEncoding string `json:"content_encoding,omitempty"`
	DeliveryMode    uint8  `json:"delivery_mode,omitempty"`
	Priority        uint8  `json:"priority,omitempty"`
	CorrelationID   string `json:"correlation_id,omitempty"`
	ReplyTo         string `json:"reply_to,omitempty"`
	Expiration      string `json:"expiration,omitempty"`
	MessageID       string `json:"message_id,omitempty"`
	Timestamp       string `json:"timestamp,omitempty"` // as in Value
	Type            string `json:"type,omitempty"`
	UserID          string `json:"user_id,omitempty"`
	AppID           string `json:"app_id,omitempty"`
}

// Value is a header with its type.
type Value struct {
	// Type is bool, int8 to int64, uint8 to uint32, float32, float64, decimal, string, bytes,
	// timestamp, array, table or void.
	Type string `json:"type"`
	// Value is a JSON value; a void has none. It is a text for a decimal, for a timestamp,
	// and for a number that JSON can't express. A timestamp is RFC 3339, or seconds since
	// 1970 if the year has no four digits.
	Value any `json:"value,omitempty"`
	// Base64 stands in for Value if the type is bytes, or a string that isn't UTF-8.
	Base64 *string `json:"value_base64,omitempty"`
}

// NewView returns the view of a; nil for nil.
func NewView(a *task.AMQP) *View {
	if a == nil {
		return nil
	}
	p := a.Properties
	v := &View{RoutingKey: a.RoutingKey, Headers: viewTable(a.Headers), Properties: PropertiesView{
		ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode, Priority: p.Priority,
		CorrelationID: p.CorrelationID, ReplyTo: p.ReplyTo, Expiration: p.Expiration, MessageID: p.MessageID,
		Type: p.Type, UserID: p.UserID, AppID: p.AppID,
	}}
	if !p.Timestamp.IsZero() {
		v.Properties.Timestamp = viewTime(p.Timestamp)
	}
	return v
}

func viewTable(t map[string]any) map[string]Value {
	view := make(map[string]Value, len(t))
	for k, v := range t {
		view[k] = viewValue(v)
	}
	return view
}

func viewTime(t time.Time) string {
	if y := t.Year(); y < 0 || y > 9999 {
		return strconv.FormatInt(t.Unix(), 10)
	}
	return t.UTC().Format(time.RFC3339)
}

func viewValue(value any) Value {
	switch v := value.(type) {
	case nil:
		return Value{Type: "void"}
	case string:
		if utf8.ValidString(v) {
			return Value{Type: "string", Value: v}
		}
		return Value{Type: "string", Base64: encoded([]byte(v))}
	case []byte:
		return Value{Type: "bytes", Base64: encoded(v)}
	case time.Time:
		return Value{Type: "timestamp", Value: viewTime(v)}
	case Decimal:
		return Value{Type: "decimal", Value: viewDecimal(v)}
	case map[string]any:
		return Value{Type: "table", Value: viewTable(v)}
	case []any:
		all := make([]Value, len(v))
		for i := range v {
			all[i] = viewValue(v[i])
		}
		return Value{Type: "array", Value: all}
	default:
		return viewNumber(value)
	}
}

func viewNumber(value any) Value {
	switch v := value.(type) {
	case bool:
		return Value{Type: "bool", Value: v}
	case int8:
		return Value{Type: "int8", Value: v}
	case uint8:
		return Value{Type: "uint8", Value: v}
	case int16:
		return Value{Type: "int16", Value: v}
	case uint16:
		return Value{Type: "uint16", Value: v}
	case int32:
		return Value{Type: "int32", Value: v}
	case uint32:
		return Value{Type: "uint32", Value: v}
	case float32:
		return Value{Type: "float32", Value: viewFloat(float64(v), v)}
	case float64:
		return Value{Type: "float64", Value: viewFloat(v, v)}
	default: // Decode returns no other type
		return Value{Type: "int64", Value: v}
	}
}

// viewFloat returns value, or a text if JSON has no such number.
func viewFloat(f float64, value any) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return value
}

func viewDecimal(d Decimal) string {
	text := strconv.FormatInt(int64(d.Value), 10)
	if d.Scale == 0 {
		return text
	}
	return text + "e-" + strconv.Itoa(int(d.Scale))
}

func encoded(b []byte) *string {
	text := base64.StdEncoding.EncodeToString(b)
	return &text
}
