package telemetry

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// maxAnswer limits the part of an answer that NotReadyError has, in bytes.
const maxAnswer = 4 << 10

// NotReadyError says why a scanner isn't ready, or doesn't answer. Its text has the advice.
type NotReadyError struct{ text string }

func (e *NotReadyError) Error() string { return e.text }

// Ask returns nil if the scanner whose admin.listen is listen answers path with status 200,
// else most likely a *NotReadyError.
func Ask(ctx context.Context, listen, path string) error {
	addr, err := dialable(listen)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path+"?format=text", nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", addr, err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return &NotReadyError{fmt.Sprintf("ask the scanner at %s: %v; check that a scanner runs there, and admin.listen",
			addr, err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // a part is enough
	return &NotReadyError{fmt.Sprintf("scanner at %s: %s", addr, strings.TrimSpace(string(answer)))}
}

// dialable returns the address at which this machine reaches a server that listens at
// listen: localhost, if it listens on every interface.
func dialable(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("admin.listen %q: %w", listen, err)
	}
	if port == "0" {
		return "", fmt.Errorf("admin.listen %q: give it a port of its own, so that it can be asked", listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}
