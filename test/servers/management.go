package servers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// AddVhost makes a vhost that guest may use. management is the root of the node's HTTP
// API, as ManagementURL returns it.
func AddVhost(ctx context.Context, management, name string) error {
	vhost := url.PathEscape(name)
	if err := manage(ctx, http.MethodPut, management+"/api/vhosts/"+vhost, "{}"); err != nil {
		return fmt.Errorf("add vhost %s: %w", name, err)
	}
	all := `{"configure":".*","write":".*","read":".*"}`
	if err := manage(ctx, http.MethodPut, management+"/api/permissions/"+vhost+"/guest", all); err != nil {
		return fmt.Errorf("permit vhost %s: %w", name, err)
	}
	return nil
}

// DeleteVhost removes a vhost with everything in it, and closes its connections. A
// missing vhost is an error.
func DeleteVhost(ctx context.Context, management, name string) error {
	if err := manage(ctx, http.MethodDelete, management+"/api/vhosts/"+url.PathEscape(name), ""); err != nil {
		return fmt.Errorf("delete vhost %s: %w", name, err)
	}
	return nil
}

// SetPolicy makes or changes a policy for the queues of a vhost whose names match pattern.
func SetPolicy(ctx context.Context, management, vhost, name, pattern, definition string) error {
	body := fmt.Sprintf(`{"pattern":%q,"definition":%s,"apply-to":"queues"}`, pattern, definition)
	if err := manage(ctx, http.MethodPut, policyURL(management, vhost, name), body); err != nil {
		return fmt.Errorf("set policy %s: %w", name, err)
	}
	return nil
}

// DeletePolicy removes a policy. A missing one is an error.
func DeletePolicy(ctx context.Context, management, vhost, name string) error {
	if err := manage(ctx, http.MethodDelete, policyURL(management, vhost, name), ""); err != nil {
		return fmt.Errorf("delete policy %s: %w", name, err)
	}
	return nil
}

func policyURL(management, vhost, name string) string {
	return management + "/api/policies/" + url.PathEscape(vhost) + "/" + url.PathEscape(name)
}

// manage sends one request to the HTTP API. A status outside 2xx is an error.
func manage(ctx context.Context, method, target, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return nil
}

// client returns an HTTP client that keeps no connection open. Goroutines of idle
// connections would look like leaks in tests.
func client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}
