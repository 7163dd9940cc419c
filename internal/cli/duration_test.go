package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/duefleet/duefleet/internal/cli"
)

func TestDurationFlag(t *testing.T) {
	t.Parallel()
	var d time.Duration
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	cli.DurationVar(f, &d, "wait", time.Minute, "longest wait")
	usage := f.FlagUsages()
	if d != time.Minute || !strings.Contains(usage, "--wait duration   longest wait (default 1m0s)") {
		t.Errorf("default %v, usage %q", d, usage)
	}
	if err := f.Parse([]string{"--wait", "1d12h"}); err != nil || d != 36*time.Hour {
		t.Errorf("got %v, %v", d, err)
	}
	err := f.Parse([]string{"--wait", "30"})
	if err == nil || !strings.Contains(err.Error(), "want a duration with a unit") {
		t.Errorf("got %v", err)
	}
}
