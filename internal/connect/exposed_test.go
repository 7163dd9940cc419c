package connect

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

func TestSecretFilesThatAllMayReadAreExposed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		check.OK(t, os.WriteFile(path, []byte(content), 0o600))
		if err := os.Chmod(path, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return path
	}
	cert, key := certificate(t)
	for _, f := range []string{cert, key} {
		check.OK(t, os.Chmod(f, 0o644))
	}
	password, urls, token := file("password", "p", 0o644), file("urls", "amqps://a:b@h/", 0o640), file("token", "t", 0o604)
	link := filepath.Join(dir, "link")
	check.OK(t, os.Symlink(token, link))
	doc := "redis: {password_file: " + password + ", username_file: " + password + "}\n" +
		"rabbitmq:\n  urls_file: " + urls + "\n  tls: {enabled: true, ca_file: " + cert + ", cert_file: " + cert +
		", key_file: " + key + "}\n"
	cfg := load(t, doc, "DUEFLEET_CONSUL_TOKEN_FILE="+link)
	got := Exposed(cfg)
	slices.Sort(got)
	want := []string{password, link, key}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("exposed: %q, want %q", got, want)
	}
	for _, path := range []string{password, token, key} {
		check.OK(t, os.Chmod(path, 0o600))
	}
	if got := Exposed(cfg); len(got) > 0 {
		t.Errorf("exposed: %q, want none after chmod", got)
	}
	replaced := load(t, doc, "DUEFLEET_REDIS_PASSWORD=p", "DUEFLEET_REDIS_USERNAME=u")
	if slices.Contains(replaced.SecretFiles, password) {
		t.Errorf("%s counts as a secret's file, though the environment gives the secret", password)
	}
}

// TestTheConsolesSecrets: its users and its token are secrets, and a new token in its file
// is in use at once.
func TestTheConsolesSecrets(t *testing.T) {
	t.Parallel()
	users, token := writeFile(t, "ann:hash"), writeFile(t, "S3CRET-1")
	cfg := load(t, "console: {users_file: "+users+", token_file: "+token+
		", tls: {cert_file: /tls.crt, key_file: /tls.key}}")
	check.Equal(t, "secret files", fmt.Sprint(cfg.SecretFiles), fmt.Sprint([]string{token, users, "/tls.key"}))
	fresh := ConsoleToken(cfg.Console, slog.New(slog.DiscardHandler))
	check.Equal(t, "token", fresh(), "S3CRET-1")
	rewriteFile(t, token, "S3CRET-2")
	check.Equal(t, "token", fresh(), "S3CRET-2")
	check.Equal(t, "role", cfg.Console.TrustRole, "view")
}
