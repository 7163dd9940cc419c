package deploy_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// kept is a Redis that stores its users in a file, or only in memory.
type kept struct {
	t      *testing.T
	server *servers.Redis
	admin  *redis.Client
	file   string // the file with the users; empty: they are in memory only
}

// newKept starts a Redis that keeps its users in a file of its own ("aclfile"), in its
// configuration file ("redis.conf"), or only in memory ("").
func newKept(t *testing.T, way string) *kept {
	t.Helper()
	servertest.Need(t, "redis-server")
	k := &kept{t: t}
	cfg := servers.RedisConfig{Dir: t.TempDir()}
	if way != "" {
		k.file = filepath.Join(t.TempDir(), way)
		check.OK(t, os.WriteFile(k.file, nil, 0o600))
	}
	switch way {
	case "aclfile":
		cfg.Args = []string{"--aclfile", k.file}
	case "redis.conf":
		cfg.File = k.file
	}
	var err error
	k.server, err = servers.StartRedis(t.Context(), cfg)
	check.OK(t, err)
	t.Cleanup(func() {
		if err := k.server.Kill(); err != nil {
			t.Error(err)
		}
	})
	k.admin = redisAt(t, k.server.Addr())
	return k
}

// documented runs a command from docs/deploy.md, Rights: the one that begins with the
// given text. scanner.password contains "least", and redis-cli connects to this server.
func (k *kept) documented(begin string) {
	k.t.Helper()
	_, section, _ := strings.Cut(file(k.t, "docs/deploy.md"), "\n## Rights\n")
	section, _, _ = strings.Cut(section, "\n## ")
	line := regexp.MustCompile(`(?m)^` + begin + `.*$`).FindString(section)
	if line == "" {
		k.t.Fatalf("docs/deploy.md, Rights, has no command %q", begin)
	}
	dir := k.t.TempDir()
	_, port, _ := strings.Cut(k.server.Addr(), ":")
	// An alias, not a script in PATH. A file that was just written may be busy: a process that
	// another test starts has it open for a moment. Then the shell would run the next
	// redis-cli in PATH.
	alias := fmt.Sprintf("alias redis-cli='%s -e -p %s'\n", redisCLI(k.t), port)
	check.OK(k.t, errors.Join(os.Symlink(absolute(k.t, filepath.Join(root, "deploy")), filepath.Join(dir, "deploy")),
		os.WriteFile(filepath.Join(dir, "scanner.password"), []byte("least\n"), 0o600)))
	cmd := command(k.t, nil, "sh", "-c", alias+line)
	cmd.Dir = dir
	if said := must(k.t, cmd); strings.TrimSpace(said) != "OK" {
		k.t.Fatalf("%s: %s", line, said)
	}
}

// redisCLI returns the path of redis-cli.
func redisCLI(t *testing.T) string {
	t.Helper()
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		skip(t, "redis-cli is not there; on Debian: apt-get install redis-tools")
	}
	return cli
}

// settings returns the settings of scanners that use the documented user.
func (k *kept) settings() fleet.Settings {
	s := newSettings(k.t)
	s.RedisAddr, s.RedisPrefix, s.Topics = k.server.Addr(), "duefleet", served()
	s.More = map[string]fleet.Topic{"redis": {"username": "duefleet-scanner", "password": "least"}}
	return s
}

func (k *kept) restart() {
	k.t.Helper()
	check.OK(k.t, k.server.Restart(k.t.Context()))
}

// mayAsk allows the scanner's user to read where Redis stores its users.
func (k *kept) mayAsk() {
	k.t.Helper()
	k.ask("ACL", "SETUSER", "duefleet-scanner", "+config|get")
}

// ask runs a command as Redis's default user, who has all rights.
func (k *kept) ask(words ...any) {
	k.t.Helper()
	check.OK(k.t, k.admin.Do(k.t.Context(), words...).Err())
}

// TestDocumentedUsersOutliveARestart: users that are made and saved as documented exist
// after a restart of Redis, and the scanners keep working. Doctor says before the save
// that they are not saved, and afterwards that they are.
func TestDocumentedUsersOutliveARestart(t *testing.T) {
	t.Parallel()
	for way, save := range map[string]string{"aclfile": "redis-cli ACL SAVE", "redis.conf": "redis-cli CONFIG REWRITE"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			k := newKept(t, way)
			k.documented("sed ")
			s := k.settings()
			scanner := startScanner(t, s)
			examine(t, s).want("redis.users", "not_checked", "may not read whether user duefleet-scanner outlives a restart", "")
			k.mayAsk()
			examine(t, s).want("redis.users", "warn", k.file+" has no user duefleet-scanner",
				strings.TrimPrefix(save, "redis-cli "))
			k.documented(save)
			examine(t, s).want("redis.users", "ok", "user duefleet-scanner is in "+k.file, "")

			k.restart()
			path := writeSettings(t, s)
			must(t, command(t, nil, programs.Producer, "schedule", "--config", path, "--topic", "orders", "--id", "o-1", "--in",
				"0s", "--payload", "after"))
			if got := receive(t, s.RabbitMQURL, "orders.due"); got != "after" {
				t.Errorf("received %q, want after", got)
			}
			check.Until(t, "the scanner to be ready",
				func() bool { return scanner.Get(t.Context(), "/readyz", &strings.Builder{}) == nil })
		})
	}
}

// TestUsersThatAreKeptNowhereAreForgotten: Redis forgets users that it keeps only in
// memory. Doctor warns of it before.
func TestUsersThatAreKeptNowhereAreForgotten(t *testing.T) {
	t.Parallel()
	k := newKept(t, "")
	k.documented("sed ")
	k.mayAsk()
	s := k.settings()
	examine(t, s).want("redis.users", "warn", "a restart forgets user duefleet-scanner", "aclfile")
	k.restart()
	f := examine(t, s)
	f.exitsOne()
	f.want("redis.connection", "fail", "WRONGPASS", "ACL SETUSER duefleet-scanner")
}
