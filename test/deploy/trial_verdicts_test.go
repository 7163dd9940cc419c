package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/wait"
)

// verdicts has the answers of all tools about a fleet, at one time.
type verdicts struct {
	// Status is the verdict of `scanner status`, Problems the kinds and topics there that
	// are more than a notice, and Exit the code of --exit-code.
	Status   problem.Severity
	Problems []string
	Exit     int
	Doctor   int
	Connect  int   // the code of `scanner check --connect`
	Ready    []int // the codes of /readyz, of each scanner that lives
	// Metrics are the kinds and topics in duefleet_problem that are more than a notice, of
	// all scanners.
	Metrics []string
}

// tell waits until all tools say this.
func (tr *trial) tell(want verdicts) {
	tr.t.Helper()
	var got verdicts
	defer func() {
		if tr.t.Failed() {
			tr.t.Logf("got  %s\nwant %s", got, want)
		}
	}()
	wait.For(tr.t, "all tools to agree", func() bool {
		got = tr.read()
		return reflect.DeepEqual(got, want)
	})
}

func (v verdicts) String() string {
	return fmt.Sprintf("status %s %v, exit %d, doctor %d, check --connect %d, readyz %v, metrics %v", v.Status, v.Problems,
		v.Exit, v.Doctor, v.Connect, v.Ready, v.Metrics)
}

// series matches a problem in a page of metrics.
var series = regexp.MustCompile(`(?m)^duefleet_problem\{kind="(\w+)",topic="(\w*)"\} 1$`)

// read asks all tools.
func (tr *trial) read() (v verdicts) {
	tr.t.Helper()
	exit := func(args ...string) (string, int) {
		cmd := command(tr.t, nil, programs.Scanner, append(args, "--config", tr.config)...)
		out, err := cmd.Output()
		if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
			tr.t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	text, code := exit("status", "-o", "json", "--exit-code")
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
	_, v.Doctor = exit("doctor")
	_, v.Connect = exit("check", "--connect")
	for _, s := range tr.scanners {
		var page bytes.Buffer
		answer, err := http.Get("http://" + s.Admin() + "/readyz")
		if err != nil {
			continue // it is dead
		}
		check.OK(tr.t, answer.Body.Close())
		v.Ready = append(v.Ready, answer.StatusCode)
		check.OK(tr.t, s.Get(wait.Context(tr.t), "/metrics", &page))
		for _, found := range series.FindAllStringSubmatch(page.String(), -1) {
			v.Metrics = addKind(v.Metrics, problem.Kind(found[1]), found[2])
		}
	}
	return v
}

// addKind adds a kind and its topic to a sorted list, once, unless it is only a notice.
func addKind(list []string, kind problem.Kind, topic string) []string {
	if problem.New(kind, topic, "").Severity == problem.Notice {
		return list
	}
	name := strings.TrimSpace(string(kind) + " " + topic)
	if at, there := slices.BinarySearch(list, name); !there {
		return slices.Insert(list, at, name)
	}
	return list
}
