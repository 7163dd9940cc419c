package producer

import (
	"encoding/json"
	"fmt"
)

// SetJSON sets the payload to the JSON encoding of v (encoding/json). It sets the content
// type to application/json if the request has none.
func (r *Request) SetJSON(v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the payload: %w", err)
	}
	r.Payload = payload
	if r.ContentType == "" {
		r.ContentType = "application/json"
	}
	return nil
}
