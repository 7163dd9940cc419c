package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
)

const (
	// defaultHealthTimeout is below the 3 s that most container engines allow for a check.
	defaultHealthTimeout = 2 * time.Second
	// maxHealthAnswer limits the part of an answer that is printed, in bytes.
	maxHealthAnswer = 4 << 10
)

func healthcheckCommand(s *settings) *cobra.Command {
	var live bool
	timeout := defaultHealthTimeout
	cmd := &cobra.Command{
		Use:   "healthcheck --config config.yaml",
		Short: "Asks the scanner at admin.listen whether it is ready",
		Long: `Asks the scanner at admin.listen of the same configuration whether it is ready.
The exit code is 0 if it is ready. It is 1, with the reason, if the scanner isn't
ready or doesn't answer. Meant for container images without a shell and curl.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.connections()
			if err != nil {
				return err
			}
			path := "/readyz"
			if live {
				path = "/livez"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return healthcheck(ctx, cfg.Admin.Listen, path)
		}),
	}
	cmd.Flags().BoolVar(&live, "live", false, "ask only whether the scanner runs and answers, not whether it is ready")
	cli.DurationVar(cmd.Flags(), &timeout, "timeout", timeout, "how long to wait for an answer")
	return cmd
}

// healthcheck returns nil if the scanner at listen answers path with status 200.
func healthcheck(ctx context.Context, listen, path string) error {
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
		return selfAdvised{fmt.Errorf("ask the scanner at %s: %w; check that a scanner runs there, and admin.listen", addr,
			err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxHealthAnswer)) // a part is enough
	return selfAdvised{fmt.Errorf("scanner at %s: %s", addr, strings.TrimSpace(string(answer)))}
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
