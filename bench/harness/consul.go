package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
)

// atOnce is how many keys a transaction of Consul may have.
const atOnce = 64

// inConsul starts a Consul that has the documents of topics, and returns its address.
func (r *Run) inConsul(ctx context.Context, topics map[string]fleet.Topic) (addr string, err error) {
	consul, err := servers.StartConsul(ctx, servers.ConsulConfig{Dir: filepath.Join(r.Dir, "consul")})
	if err != nil {
		return "", err
	}
	r.Defer(consul.Kill)
	for names := range slices.Chunk(slices.Sorted(maps.Keys(topics)), atOnce) {
		writes := make([]map[string]any, len(names))
		for i, name := range names {
			doc, err := json.Marshal(topics[name]) // which is YAML, too
			if err != nil {
				return "", fmt.Errorf("document of topic %s: %w", name, err)
			}
			writes[i] = map[string]any{"KV": map[string]any{"Verb": "set", "Key": prefix + "/topics/" + name, "Value": doc}}
		}
		if err := put(ctx, "http://"+consul.Addr()+"/v1/txn", writes); err != nil {
			return "", fmt.Errorf("write documents to consul: %w", err)
		}
	}
	return consul.Addr(), nil
}

// put sends a value as JSON, which has []byte as Base64.
func put(ctx context.Context, url string, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return nil
}
