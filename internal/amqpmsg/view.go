package amqpmsg

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/duefleet/duefleet/task"
)

// MaxJSON is more than the bytes of a View in JSON. Most of them come from an array of voids:
// each has one byte in AMQP and 16 in JSON.
const MaxJSON = 16*MaxProperties + 16<<10

// View is a message in JSON, as commands and logs show it. It lacks the payload. Parse reads
// it. A text that isn't UTF-8 is in base64, in the field whose name ends with _base64.
type View struct {
	RoutingKey string         `json:"routing_key"`
	Properties PropertiesView `json:"properties"`
	// Headers has the headers whose names are UTF-8.
	Headers map[string]Value `json:"headers"`

	// RoutingKeyBase64 stands in for RoutingKey, which is empty then.
	RoutingKeyBase64 *string `json:"routing_key_base64,omitzero"`
	// PropertiesBase64 has properties in base64, by name.
	PropertiesBase64 map[string]string `json:"properties_base64,omitzero"`
	// HeadersBase64 has the other headers, by their names in base64.
	HeadersBase64 map[string]Value `json:"headers_base64,omitzero"`
}

// PropertiesView are the properties that a message has.
type PropertiesView struct {
	ContentType     string `json:"content_type,omitzero"`
	ContentEncoding string `json:"content_encoding,omitzero"`
	DeliveryMode    uint8  `json:"delivery_mode,omitzero"`
	Priority        uint8  `json:"priority,omitzero"`
	CorrelationID   string `json:"correlation_id,omitzero"`
	ReplyTo         string `json:"reply_to,omitzero"`
	Expiration      string `json:"expiration,omitzero"`
	MessageID       string `json:"message_id,omitzero"`
	Timestamp       string `json:"timestamp,omitzero"` // as in Value.
	Type            string `json:"type,omitzero"`
	UserID          string `json:"user_id,omitzero"`
	AppID           string `json:"app_id,omitzero"`
}

// Value is a header with its type.
type Value struct {
	// Type is bool, int8 to int64, uint8 to uint32, float32, float64, decimal, string, bytes,
	// timestamp, array, table or void.
	Type string `json:"type"`
	// Value is a JSON value; a void has none. It is a text for a decimal, for a timestamp,
	// and for a number that JSON can't express. A timestamp is RFC 3339, or seconds since
	// 1970 if the year has no four digits.
	Value any `json:"value,omitzero"`
	// Base64 stands in for Value if the type is bytes, or a string that isn't UTF-8.
	Base64 *string `json:"value_base64,omitzero"`
	// NaN has the bits of a float32 or float64 whose value is NaN, in hexadecimal. There are
	// many such numbers.
	NaN string `json:"nan,omitzero"`
	// TableBase64 has the entries of a table whose names aren't UTF-8, by their names in
	// base64.
	TableBase64 map[string]Value `json:"table_base64,omitzero"`
}

// NewView returns the view of a; nil for nil.
func NewView(a *task.AMQP) *View {
	if a == nil {
		return nil
	}
	p := a.Properties
	v := &View{RoutingKey: a.RoutingKey, Properties: PropertiesView{
		ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode, Priority: p.Priority,
		CorrelationID: p.CorrelationID, ReplyTo: p.ReplyTo, Expiration: p.Expiration, MessageID: p.MessageID,
		Type: p.Type, UserID: p.UserID, AppID: p.AppID,
	}}
	v.Headers, v.HeadersBase64 = viewTable(a.Headers)
	if !p.Timestamp.IsZero() {
		v.Properties.Timestamp = viewTime(p.Timestamp)
	}
	if !utf8.ValidString(a.RoutingKey) {
		v.RoutingKey, v.RoutingKeyBase64 = "", encoded([]byte(a.RoutingKey))
	}
	for name, text := range texts(&v.Properties) {
		if !utf8.ValidString(*text) {
			if v.PropertiesBase64 == nil {
				v.PropertiesBase64 = map[string]string{}
			}
			v.PropertiesBase64[name], *text = *encoded([]byte(*text)), ""
		}
	}
	return v
}

// texts returns the properties that are texts, by name.
func texts(p *PropertiesView) map[string]*string {
	return map[string]*string{
		"content_type": &p.ContentType, "content_encoding": &p.ContentEncoding, "correlation_id": &p.CorrelationID,
		"reply_to": &p.ReplyTo, "expiration": &p.Expiration, "message_id": &p.MessageID, "type": &p.Type,
		"user_id": &p.UserID, "app_id": &p.AppID,
	}
}

// viewTable returns the entries with names in UTF-8, and the others, nil for none.
func viewTable(t map[string]any) (view, others map[string]Value) {
	view = make(map[string]Value, len(t))
	for k, v := range t {
		if utf8.ValidString(k) {
			view[k] = viewValue(v)
			continue
		}
		if others == nil {
			others = map[string]Value{}
		}
		others[*encoded([]byte(k))] = viewValue(v)
	}
	return view, others
}

func viewTime(t time.Time) string {
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return strconv.FormatInt(t.Unix(), 10)
	}
	return t.Format(time.RFC3339)
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
		view, others := viewTable(v)
		return Value{Type: "table", Value: view, TableBase64: others}
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
		view := Value{Type: "float32", Value: viewFloat(float64(v), v)}
		if math.IsNaN(float64(v)) {
			view.NaN = fmt.Sprintf("%08x", math.Float32bits(v))
		}
		return view
	case float64:
		view := Value{Type: "float64", Value: viewFloat(v, v)}
		if math.IsNaN(v) {
			view.NaN = fmt.Sprintf("%016x", math.Float64bits(v))
		}
		return view
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
