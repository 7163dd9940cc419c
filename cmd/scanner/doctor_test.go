package main

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/doctor"
)

// examined are the findings of `scanner doctor`, and its exit code.
func (o *operator) examined() (findings []doctor.Finding, code int) {
	o.t.Helper()
	code, text := o.call("doctor", "-o", "json")
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&findings); err != nil {
		o.t.Fatalf("%v: %s", err, text)
	}
	return findings, code
}

// found are the findings of a check, a line each: state, what, and what mends it.
func (o *operator) found(check string) string {
	o.t.Helper()
	findings, _ := o.examined()
	var lines []string
	for _, f := range findings {
		if f.Check == check {
			lines = append(lines, string(f.State)+": "+f.What+" -> "+f.Mend)
		}
	}
	return strings.Join(lines, "\n")
}

// notes leaves a member's note in Consul: the documents that it works by.
func (o *operator) notes(member string, documents map[string]string) {
	o.t.Helper()
	cfg, err := config.LoadConnections(o.config, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	client, err := api.NewClient(&api.Config{Address: cfg.Consul.Addr, HttpClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	if err != nil {
		o.t.Fatal(err)
	}
	text, _ := json.Marshal(map[string]any{"documents": digests(documents)})
	if _, err := client.KV().Put(&api.KVPair{Key: cfg.Consul.Prefix + "/status/" + member + "/config", Value: text}, nil); err != nil {
		o.t.Fatal(err)
	}
}

func digests(documents map[string]string) map[string]string {
	all := map[string]string{}
	for topic, text := range documents {
		all[topic] = config.Digest([]byte(text))
	}
	return all
}

// worksBy has a member say by which documents it works, in its heartbeat and in Consul.
func (o *operator) worksBy(name string, documents map[string]string, more balance.Member) {
	o.t.Helper()
	says := o.member(name)
	more.Applied, more.Documents = math.MaxInt64, config.HashAll(digests(documents))
	says.Store(&more)
	o.notes(name, documents)
	o.heard(name, func(m balance.Member) bool { return m.Documents == more.Documents })
}

// TestDoctorNamesTopicAndMemberBehind: and says nothing of members that work by the
// documents, refuse one, which is a finding of its own, or don't say by which they work.
func TestDoctorNamesTopicAndMemberBehind(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	now := map[string]string{"orders": "rate: 5\n", "mails": "{}"}
	o.puts(now)
	o.worksBy("one", now, balance.Member{})
	o.worksBy("two", now, balance.Member{})
	old := o.member("old")
	old.Store(&balance.Member{Applied: 7})
	o.heard("old", func(m balance.Member) bool { return m.Applied == 7 })
	if got := o.found("fleet configuration"); got != "" {
		t.Errorf("with nobody behind: %s", got)
	}
	o.worksBy("refusing", map[string]string{"orders": "rate: 4\n", "mails": "{}"}, balance.Member{Errors: map[string]string{"orders": "unknown key"}})
	if got := o.found("fleet configuration"); got != "" {
		t.Errorf("with one that refuses: %s", got)
	}
	if got := o.found("topic orders document"); !strings.HasPrefix(got, "fail: scanner refusing refuses it") {
		t.Errorf("of one that refuses: %s", got)
	}
	o.worksBy("slow", map[string]string{"orders": "rate: 4\n", "mails": "{}"}, balance.Member{})
	if got := o.found("fleet configuration"); !strings.HasPrefix(got, "warn: scanner slow hasn't applied the document of topic orders -> ") || strings.Contains(got, "\n") {
		t.Errorf("with one behind: %s", got)
	}
}
