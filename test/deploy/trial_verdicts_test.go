package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
)

// verdicts has the answers of all tools about a fleet, at one time.
type verdicts struct {
	// Status is the verdict of `scanner status`, Problems the kinds and topics there, and
	// Exit the code of --exit-code.
	Status   problem.Severity
	Problems []string
	Exit     int
	Doctor   int
	Connect  int   // the code of `scanner check --connect`
	Ready    []int // the codes of /readyz, of each scanner that lives
	// Metrics are the kinds and topics in duefleet_problem, of all scanners.
	Metrics []string
	// Alerts are the alerts that the shipped rules fire if this lasts.
	Alerts []string
}

// tell waits until all tools say this, and the rules fire the alerts.
func (tr *trial) tell(want verdicts) {
	tr.t.Helper()
	tr.agree(want)
	tr.alertsAre(want.Alerts)
}

// agree waits until all tools say this, apart from the alerts.
func (tr *trial) agree(want verdicts) {
	tr.t.Helper()
	var got verdicts
	defer func() {
		if tr.t.Failed() {
			tr.t.Logf("got  %s\nwant %s", got, want)
		}
	}()
	check.Until(tr.t, "all tools to agree", func() bool {
		got = tr.read()
		got.Alerts = want.Alerts
		return reflect.DeepEqual(got, want)
	})
	for _, name := range slices.Concat(got.Problems, got.Metrics) {
		kind, _, _ := strings.Cut(name, " ")
		raised.Store(kind, true)
	}
}

// raised has the kinds of problems that the rows of TestTrial have seen so far.
var raised sync.Map

// raisesAll fails the test unless the rows have seen all kinds in the table of
// docs/alerts.md, which is made from the list of kinds.
func raisesAll(t *testing.T) {
	t.Helper()
	kinds := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (?:broken|degraded|notice) \\|").FindAllStringSubmatch(
		file(t, "docs/alerts.md"), -1)
	if len(kinds) < 38 {
		t.Errorf("docs/alerts.md has only %d kinds", len(kinds))
	}
	for _, kind := range kinds {
		_, there := raised.Load(kind[1])
		other, excepted := elsewhere[kind[1]]
		switch {
		case there && excepted:
			t.Errorf("a row raises %s: it is no exception", kind[1])
		case excepted && !strings.Contains(file(t, other.file), "\nfunc "+other.test+"("):
			t.Errorf("%s: there is no %s in %s", kind[1], other.test, other.file)
		case !there && !excepted:
			t.Errorf("no row raises %s", kind[1])
		}
	}
}

// elsewhere has the kinds that no row raises, with the test that does, on real servers. A
// scanner reports topic_unserved only while it opens a channel, so no fault holds it.
var elsewhere = map[string]struct{ file, test string }{
	"topic_unserved": {"internal/scanner/problems_test.go", "TestATopicIsUnservedWhileItsChannelOpens"},
}

func (v verdicts) String() string {
	return fmt.Sprintf("status %s %v, exit %d, doctor %d, check --connect %d, readyz %v, metrics %v, alerts %v", v.Status,
		v.Problems, v.Exit, v.Doctor, v.Connect, v.Ready, v.Metrics, v.Alerts)
}

// series matches a problem in a page of metrics.
var series = regexp.MustCompile(`(?m)^duefleet_problem\{kind="(\w+)",topic="(\w*)"\} 1$`)

// read asks all tools.
func (tr *trial) read() (v verdicts) {
	tr.t.Helper()
	exit := func(ctx context.Context, args ...string) (string, int) {
		cmd := commandUntil(ctx, nil, programs.Scanner, append(args, "--config", tr.config)...)
		out, err := cmd.Output()
		if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
			tr.t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	text, code := exit(tr.t.Context(), "status", "-o", "json", "--exit-code")
	var status struct {
		Status   problem.Severity
		Problems []problem.Problem
	}
	if v.Exit = code; text != "" {
		check.OK(tr.t, json.Unmarshal([]byte(text), &status))
	}
	v.Status = status.Status
	for _, p := range status.Problems {
		v.Problems = addKind(v.Problems, p.Kind, p.Topic)
	}
	limited, cancel := context.WithTimeout(tr.t.Context(), doctorLimit)
	defer cancel()
	_, v.Doctor = exit(limited, "doctor")
	_, v.Connect = exit(tr.t.Context(), "check", "--connect")
	for _, s := range tr.scanners {
		var page bytes.Buffer
		answer, err := http.Get("http://" + s.Admin() + "/readyz")
		if err != nil {
			continue // it is dead
		}
		check.OK(tr.t, answer.Body.Close())
		v.Ready = append(v.Ready, answer.StatusCode)
		check.OK(tr.t, s.Get(check.Context(tr.t), "/metrics", &page))
		for _, found := range series.FindAllStringSubmatch(page.String(), -1) {
			v.Metrics = addKind(v.Metrics, problem.Kind(found[1]), found[2])
		}
	}
	return v
}

// addKind adds a kind and its topic to a sorted list, once.
func addKind(list []string, kind problem.Kind, topic string) []string {
	name := strings.TrimSpace(string(kind) + " " + topic)
	if at, there := slices.BinarySearch(list, name); !there {
		return slices.Insert(list, at, name)
	}
	return list
}
