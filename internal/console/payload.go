package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
)

const (
	// maxPayloadShown limits each form of a payload, and an AMQP message, in bytes.
	maxPayloadShown = 16 << 10
	// maxHexShown limits the bytes that are shown as hex.
	maxHexShown = 4 << 10
	// maxJSONParts limits the objects and arrays of a payload that is formatted. They bound its
	// depth, and so the size of the result.
	maxJSONParts = 1000
)

// payloadView has the forms of a payload; "" for a form that it doesn't have.
type payloadView struct {
	Text, JSON, Hex string
	// Cut says how much is shown; "" for all.
	Cut string
	// Message is the message of a task that came through the intake, without its payload, as
	// JSON.
	Message string
}

func newPayloadView(payload []byte, message *task.AMQP) *payloadView {
	v := &payloadView{Hex: hex.Dump(payload[:min(len(payload), maxHexShown)])}
	if message != nil {
		// a view has no value that can't be encoded
		text, _ := json.MarshalIndent(amqpmsg.NewView(message), "", "  ")
		v.Message = cutText(string(text))
	}
	if len(payload) > maxPayloadShown {
		v.Cut = "The first " + count(maxPayloadShown) + " bytes."
		payload = payload[:maxPayloadShown]
		for cut := 0; cut < utf8.UTFMax && !utf8.Valid(payload); cut++ { // a character may be cut, too
			payload = payload[:len(payload)-1]
		}
	}
	if !utf8.Valid(payload) {
		return v
	}
	v.Text = visible(string(payload))
	var formatted bytes.Buffer
	parts := bytes.Count(payload, []byte("{")) + bytes.Count(payload, []byte("["))
	if parts > 0 && parts <= maxJSONParts && json.Indent(&formatted, payload, "", "  ") == nil {
		v.JSON = visible(cutText(formatted.String()))
	}
	return v
}

// cutText returns the begin of a text that is too long.
func cutText(text string) string {
	if len(text) <= maxPayloadShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxPayloadShown], "") + "..."
}

// visible replaces characters that can't be seen, or change the order of others.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return '\ufffd'
	}, text)
}
