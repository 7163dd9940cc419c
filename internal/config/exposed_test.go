package config

import (
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
	cfg, err := decode("c", []byte(doc), []string{"DUEFLEET_CONSUL_TOKEN_FILE=" + link})
	check.OK(t, err)
	got := cfg.Exposed()
	slices.Sort(got)
	want := []string{password, link, key}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("exposed: %q, want %q", got, want)
	}
	for _, path := range []string{password, token, key} {
		check.OK(t, os.Chmod(path, 0o600))
	}
	if got := cfg.Exposed(); len(got) > 0 {
		t.Errorf("exposed: %q, want none after chmod", got)
	}
	replaced, err := decode("c", []byte(doc), []string{"DUEFLEET_REDIS_PASSWORD=p", "DUEFLEET_REDIS_USERNAME=u"})
	check.OK(t, err)
	if slices.Contains(replaced.SecretFiles, password) {
		t.Errorf("%s counts as a secret's file, though the environment gives the secret", password)
	}
}
