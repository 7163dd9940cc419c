package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/duefleet/duefleet/consumer"
)

// mailer posts mails to a service that sends one mail for each Idempotency-Key.
type mailer struct{ url string }

func (m mailer) send(ctx context.Context, key, address, text string) error {
	body, err := json.Marshal(map[string]string{"to": address, "text": text})
	if err != nil {
		return consumer.Park(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(body))
	if err != nil {
		return consumer.Park(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode < http.StatusMultipleChoices:
		return nil
	case response.StatusCode == http.StatusGone: // the buyer wants no mails
		return consumer.Drop(fmt.Errorf("mail: %s", response.Status))
	default:
		return fmt.Errorf("mail: %s", response.Status)
	}
}
