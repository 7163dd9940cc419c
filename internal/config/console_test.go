package config

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestTheConsolesSecrets: its users and its token are secrets, and a new token in its file
// is in use at once.
func TestTheConsolesSecrets(t *testing.T) {
	t.Parallel()
	users, token := writeFile(t, "ann:hash"), writeFile(t, "S3CRET-1")
	cfg, err := decode("config.yaml", []byte("console: {users_file: "+users+", token_file: "+token+
		", tls: {cert_file: /tls.crt, key_file: /tls.key}}"), nil)
	check.OK(t, err)
	check.Equal(t, "secret files", fmt.Sprint(cfg.SecretFiles), fmt.Sprint([]string{token, users, "/tls.key"}))
	fresh := cfg.Console.Fresh(slog.New(slog.DiscardHandler))
	check.Equal(t, "token", fresh(), "S3CRET-1")
	rewriteFile(t, token, "S3CRET-2")
	check.Equal(t, "token", fresh(), "S3CRET-2")
	check.Equal(t, "role", cfg.Console.TrustRole, "view")
}
