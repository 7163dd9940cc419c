package e2e_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	consul "github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// marks are secret values that must not appear in any output. Each is unique.
type marks map[string]string

func newMarks() marks {
	m := marks{}
	for _, what := range []string{"payload", "header", "redis", "rabbitmq"} {
		m[what] = "mark-" + what + "-5ec2e7"
	}
	m["consul"] = "5ec2e700-0000-4000-8000-00000000c045"
	return m
}

// seen returns the marks that a text contains, as plain text or in a common encoding of
// bytes.
func (m marks) seen(text string) []string {
	var found []string
	for what, mark := range m {
		raw := []byte(mark)
		forms := []string{mark, hex.EncodeToString(raw), strings.Trim(fmt.Sprintf("%d", raw), "[]")}
		for shift := range 3 { // base64 works on groups of three bytes; its ends depend on the neighbours
			coded := base64.StdEncoding.EncodeToString(append(make([]byte, shift), raw...))
			forms = append(forms, coded[4:len(coded)-4])
		}
		for _, form := range forms {
			if strings.Contains(text, form) {
				found = append(found, what+" as "+form)
			}
		}
	}
	return found
}

// TestMarksAreSeen: seen finds marks in every encoding.
func TestMarksAreSeen(t *testing.T) {
	t.Parallel()
	m := newMarks()
	mark := []byte(m["payload"])
	for _, text := range []string{
		fmt.Sprintf("a %s b", mark), fmt.Sprintf("%q", mark), fmt.Sprintf("%d", mark), fmt.Sprintf("%x", mark),
		fmt.Sprintf("%+v", struct{ P []byte }{mark}),
		base64.StdEncoding.EncodeToString(mark), base64.StdEncoding.EncodeToString([]byte("a" + string(mark) + "b")),
		base64.StdEncoding.EncodeToString([]byte("ab" + string(mark))),
	} {
		if len(m.seen(text)) == 0 {
			t.Errorf("no mark is seen in %s", text)
		}
	}
	if found := m.seen("mark-5ec2e7 [109 97 114 107] orders"); len(found) > 0 {
		t.Errorf("%q are seen where there are none", found)
	}
}

// testSecrets checks that scanners never output a payload, header, password or token,
// whatever goes wrong.
func testSecrets(g *guarded) {
	t := g.t
	m := newMarks()
	w := g.fixture("secrets", map[string]fleet.Topic{
		"redis":    {"username": "marked", "password": m["redis"]},
		"rabbitmq": {"urls": []string{g.amqp("marked", m["rabbitmq"])}},
		"consul":   {"token": m["consul"]},
	})
	account := []any{"ACL", "SETUSER", "marked", "on", "~*", "&*", "+@all", "resetpass"}
	if err := w.redis.Do(t.Context(), append(account, ">"+m["redis"])...).Err(); err != nil {
		t.Fatal(err)
	}
	g.ctl("add_user", "marked", m["rabbitmq"])
	g.ctl("set_permissions", "-p", "/", "marked", ".*", ".*", ".*")
	token, _, err := g.master().ACL().TokenCreate(&consul.ACLToken{
		SecretID: m["consul"], Policies: []*consul.ACLLink{{Name: "global-management"}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}

	w.exchange("direct", "secrets", "", "")
	must(t, w.scanner("topic", "set", "orders", "shards=1", "exchange=secrets", "max_attempts=2", "backoff.min=10ms",
		"backoff.max=10ms"))
	for _, format := range []string{"json", "text"} {
		w.startAs(fleet.ScannerConfig{Name: format, Env: []string{"DUEFLEET_LOG_LEVEL=debug",
			"DUEFLEET_LOG_FORMAT=" + format}})
	}
	w.awaitServed(1)
	must(t, w.producer("schedule", "--topic", "orders", "--id", "a", "--in", "0s", "--payload", m["payload"], "--header",
		"k="+m["header"]))
	check.Until(w.t, "a task that was returned to be parked",
		rarely(func() bool { return w.status().Topic("orders").Parked == 1 }))
	if found := m.seen(must(t, w.producer("get", "--topic", "orders", "--id", "a")).Stdout); len(found) < 2 {
		t.Errorf("in a task's own output %q are seen, want its payload and its header", found)
	}
	w.checkUnseen(g, m, "topic served")

	if err := w.redis.Do(t.Context(), append(account, ">other")...).Err(); err != nil {
		t.Fatal(err)
	}
	if err := w.redis.Do(t.Context(), "CLIENT", "KILL", "USER", "marked").Err(); err != nil {
		t.Fatal(err)
	}
	w.checkUnseen(g, m, "WRONGPASS")
	g.ctl("change_password", "marked", "other")
	g.ctl("close_all_user_connections", "marked", "the password was changed")
	w.checkUnseen(g, m, "Login was refused")
	if _, err := g.master().ACL().TokenDelete(token.AccessorID, nil); err != nil {
		t.Fatal(err)
	}
	w.checkUnseen(g, m, "ACL not found")
	w.stop()
}

// checkUnseen waits until every scanner reports the text after, in the log or at /readyz:
// the log has only the first reason of an outage. Then it looks for marks in all output
// of the scanners and of status.
func (w *fixture) checkUnseen(g *guarded, m marks, after string) {
	w.t.Helper()
	said := map[string]string{}
	for _, s := range w.scanners {
		check.Until(w.t, after+" in the log or at /readyz",
			rarely(func() bool { return strings.Contains(w.log(s)+readyz(s), after) }))
		said[s.Log()] = w.log(s)
		for _, path := range []string{"/readyz", "/readyz?format=json", "/metrics"} {
			said[path+" of "+s.Log()] = get(s, path)
		}
	}
	status := w.scanner("status", "-o", "json")
	said["scanner status"] = status.Stdout + status.Stderr
	var notes consul.KVPairs
	check.Until(w.t, "a note of each scanner in Consul", rarely(func() (ok bool) {
		var err error
		notes, _, err = g.master().KV().List("secrets/status/", nil)
		return err == nil && len(notes) == len(w.scanners)
	}))
	for _, n := range notes {
		said[n.Key] = string(n.Value)
	}
	for where, text := range said {
		if text == "" {
			w.t.Errorf("%s says nothing", where)
		}
		if found := m.seen(text); len(found) > 0 {
			w.t.Errorf("%s shows %q:\n%s", where, found, text)
		}
	}
}

// TestReadableSecretFilesAreToldOnce: a scanner warns of a secret's file that every user
// of the machine can read, and names the fix. It doesn't warn of a private file.
func TestReadableSecretFilesAreToldOnce(t *testing.T) {
	t.Parallel()
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	for name, mode := range map[string]os.FileMode{"closed": 0o600, "open": 0o644} {
		path := filepath.Join(w.dir, name+"-urls")
		if err := errors.Join(os.WriteFile(path, []byte(w.settings.RabbitMQURL), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		s := w.startAs(fleet.ScannerConfig{Name: name, Env: []string{"DUEFLEET_RABBITMQ_URLS_FILE=" + path}})
		var told []string
		for line := range strings.Lines(w.log(s)) {
			if strings.Contains(line, "secret") {
				told = append(told, line)
			}
		}
		switch {
		case mode == 0o600 && len(told) > 0:
			t.Errorf("mode 0600: the log tells %q", told)
		case mode == 0o644 && (len(told) != 1 || !holdsLine(told[0], "time=",
			[]string{"level=WARN", "file=" + path, "chmod o-rwx " + path})):
			t.Errorf("mode 0644: the log tells %q, want one warning that names the file and its chmod", told)
		}
	}
	w.stop()
}
