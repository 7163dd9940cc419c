package producer

import (
	"encoding/json"
	"fmt"
)

// SetJSON makes v the payload, as encoding/json encodes it. The content type is
// application/json, unless the request has one.
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
