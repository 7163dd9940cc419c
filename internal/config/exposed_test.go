package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSecretFilesThatAllMayReadAreExposed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return path
	}
	cert, key := certificate(t)
	for _, f := range []string{cert, key} {
		if err := os.Chmod(f, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	password, urls, token := file("password", "p", 0o644), file("urls", "amqps://a:b@h/", 0o640), file("token", "t", 0o604)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(token, link); err != nil {
		t.Fatal(err)
	}
	doc := "redis: {password_file: " + password + ", username_file: " + password + "}\n" +
		"rabbitmq:\n  urls_file: " + urls + "\n  tls: {enabled: true, ca_file: " + cert + ", cert_file: " + cert +
		", key_file: " + key + "}\n"
	cfg, err := decode("c", []byte(doc), []string{"DUEFLEET_CONSUL_TOKEN_FILE=" + link})
	if err != nil {
		t.Fatal(err)
	}
	got := cfg.Exposed()
	slices.Sort(got)
	want := []string{password, link, key}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("exposed: %q, want %q", got, want)
	}
	for _, path := range []string{password, token, key} {
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := cfg.Exposed(); len(got) > 0 {
		t.Errorf("exposed: %q, want none after chmod", got)
	}
	replaced, err := decode("c", []byte(doc), []string{"DUEFLEET_REDIS_PASSWORD=p", "DUEFLEET_REDIS_USERNAME=u"})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(replaced.SecretFiles, password) {
		t.Errorf("%s counts as a secret's file, though the environment gives the secret", password)
	}
}
