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
	// defaultHealthTimeout is below the three seconds that most container
	// engines give a check.
	defaultHealthTimeout = 2 * time.Second
	// maxHealthAnswer bounds what is repeated of an answer, in bytes.
	maxHealthAnswer = 4 << 10
)

func healthcheckCommand(s *settings) *cobra.Command {
	var live bool
	timeout := defaultHealthTimeout
	cmd := &cobra.Command{
		Use:   "healthcheck --config config.yaml",
		Short: "Asks the scanner that runs beside it whether it is ready",
		Long: `Asks the scanner that runs beside it, at admin.listen of the same configuration,
whether it is ready. Exit code 0 if it is, 1 if it isn't or doesn't answer, with
the reason. It is for container images, which hold no shell and no curl.`,
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
	cmd.Flags().BoolVar(&live, "live", false, "ask only whether it runs and answers, whatever it depends on")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for an answer")
	return cmd
}

// healthcheck is nil if the scanner that listens there answers well.
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
		return selfAdvised{fmt.Errorf("ask the scanner at %s: %w; check that a scanner runs there, and admin.listen", addr, err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxHealthAnswer)) // what was read will do
	return selfAdvised{fmt.Errorf("scanner at %s: %s", addr, strings.TrimSpace(string(answer)))}
}

// dialable is where a server that listens there can be called from the same
// machine: every interface includes loopback.
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
