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
