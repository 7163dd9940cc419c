package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// newest returns the last change in the history of topic orders.
func (o *operator) newest() (line topicconfig.HistoryLine) {
	o.t.Helper()
	_, text := o.call("topic", "history", "orders", "-o", "json")
	var lines []topicconfig.HistoryLine
	if err := json.Unmarshal([]byte(text), &lines); err != nil || len(lines) == 0 {
		o.t.Fatalf("%v: %s", err, text)
	}
	return lines[len(lines)-1]
}

// TestEveryChangeHasItsReason: each verb that writes a document takes --as and --reason,
// and the history shows both.
func TestEveryChangeHasItsReason(t *testing.T) {
	t.Parallel()
	o := newConsulOperator(t)
	topics := writeFile(t, "topics.yaml", "orders: {rate: 9}\n")
	for _, args := range [][]string{
		{"create", "orders", "--no-wait"},
		{"set", "orders", "rate=5", "--no-wait"},
		{"pause", "orders", "--no-wait"},
		{"resume", "orders", "--no-wait"},
		{"undo", "orders", "--no-wait"},
		{"apply", "-f", topics, "--yes", "--no-wait"},
		{"rm", "orders", "--yes"},
	} {
		reason := "since " + args[0] + " must be"
		o.wants(cli.Done, "orders", append(append([]string{"topic"}, args...), "--as", "ann", "--reason", reason)...)
		if l := o.newest(); l.By != "ann" || l.Reason != reason || l.Verb != args[0] {
			t.Errorf("%s: %+v", args[0], l)
		}
		o.wants(cli.Done, "("+reason+")", "topic", "history", "orders")
	}
	for flag, text := range map[string]string{"--as": strings.Repeat("x", 129), "--reason": strings.Repeat("x", 513)} {
		o.wants(cli.Usage, flag+": must be a text of 1 to ", "topic", "set", "orders", "rate=6", flag, text)
		o.wants(cli.Usage, flag+": must be a text of 1 to ", "topic", "set", "orders", "rate=6", flag, " ")
		o.wants(cli.Usage, flag+": must be a text of 1 to ", "topic", "set", "orders", "rate=6", flag, "\xff")
	}
}

// TestWhoCameBySudoOrSSH: the user behind sudo or SSH is named before the current user.
func TestWhoCameBySudoOrSSH(t *testing.T) {
	t.Parallel()
	host, _ := os.Hostname()
	for want, env := range map[string]map[string]string{
		"ann@" + host: {"SUDO_USER": "ann", "SSH_USER": "bob"},
		"bob@" + host: {"SSH_USER": "bob"},
	} {
		if got := topicconfig.Caller(func(name string) string { return env[name] }); got != want {
			t.Errorf("%v: got %s, want %s", env, got, want)
		}
	}
}

// TestATokenNamesItsHolder: a token names the author by its description, else by its
// accessor; --as wins.
func TestATokenNamesItsHolder(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "consul")
	const master = "5ab4e4d1-0000-4000-8000-000000000001"
	server, err := servers.StartConsul(t.Context(), servers.ConsulConfig{
		Dir: t.TempDir(),
		HCL: fmt.Sprintf(`acl { enabled = true default_policy = "allow" tokens { initial_management = %q agent = %q } }`,
			master, master),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	client, err := api.NewClient(&api.Config{Address: server.Addr(), Token: master})
	if err != nil {
		t.Fatal(err)
	}
	check.Until(t, "consul to know its first token", func() bool {
		_, _,
			err := client.ACL().TokenReadSelf(nil)
		return err == nil
	})
	o := newOperator(t, "")
	as := func(token string) {
		t.Helper()
		o.more = fmt.Sprintf("consul: {addr: '%s', token: '%s'}\n", server.Addr(), token)
		o.configure(t, fmt.Sprintf("redis: {addrs: ['%s'], prefix: '%s'}\n", o.addr, o.prefix))
	}
	for i, description := range []string{"ann's token", ""} {
		token, _, err := client.ACL().TokenCreate(&api.ACLToken{Description: description,
			Policies: []*api.ACLLink{{Name: "global-management"}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		as(token.SecretID)
		o.wants(cli.Done, "written", "topic", "set", "orders", fmt.Sprintf("rate=%d", i+1), "--no-wait")
		want := description
		if want == "" {
			want = "token " + token.AccessorID
		}
		if got := o.newest().By; got != want {
			t.Errorf("a token described %q: by %q, want %q", description, got, want)
		}
		o.wants(cli.Done, "written", "topic", "set", "orders", fmt.Sprintf("rate=%d", i+10), "--no-wait", "--as", "bob")
		if got := o.newest().By; got != "bob" {
			t.Errorf("--as bob: by %q", got)
		}
	}
	as("")
	o.wants(cli.Done, "written", "topic", "set", "orders", "rate=20", "--no-wait")
	if got := o.newest().By; got != topicconfig.Caller(os.Getenv) {
		t.Errorf("without a token: by %q, want %q", got, topicconfig.Caller(os.Getenv))
	}
}
