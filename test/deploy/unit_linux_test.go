package deploy_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// service runs the commands of the unit and of credentials.conf as systemd does: as a
// separate user, with copies of the credentials.
type service struct {
	t     *testing.T
	dir   string // stands for /etc/duefleet and /usr/local/bin; %d is a folder below it
	unit  string
	admin string
	env   []string
}

// TestUnitReadsSecretsThatAreRootsAlone: with credentials.conf, the unit's commands work
// for a user who can't read the secrets. Their files belong to root and have mode 0600,
// and no warning is printed.
func TestUnitReadsSecretsThatAreRootsAlone(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skip(t, "changing the user needs root")
	}
	settings := newSettings(t)
	user, secrets := strings.ReplaceAll(settings.RedisPrefix, ":", "-"), map[string]string{
		"redis-password": "unit-secret\n", "rabbitmq-urls": settings.RabbitMQURL + "\n",
	}
	admit(t, settings.RedisAddr, user, "unit-secret")
	settings.RabbitMQURL = "amqp://nobody:nothing@127.0.0.1:1/"
	settings.More = map[string]fleet.Topic{"redis": {"username": user}}
	s := newService(t, settings, secrets)

	run := s.start()
	run.await("healthcheck")
	if err := run.stop(); err != nil || strings.Contains(run.log.String(), "level=WARN") {
		t.Errorf("%v:\n%s", err, run.log)
	}
}

// TestUnitStartsWheneverTheScannerDoes: the unit starts while Consul is down, and while
// one topic's document is broken. A wrong configuration ends it, and the log names the
// mistake.
func TestUnitStartsWheneverTheScannerDoes(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skip(t, "changing the user needs root")
	}
	servertest.Need(t, "consul")
	settings := newSettings(t)
	user, secrets := strings.ReplaceAll(settings.RedisPrefix, ":", "-"), map[string]string{
		"redis-password": "unit-secret\n", "rabbitmq-urls": settings.RabbitMQURL + "\n",
	}
	admit(t, settings.RedisAddr, user, "unit-secret")
	settings.More = map[string]fleet.Topic{"redis": {"username": user}}

	away := settings
	away.ConsulAddr, away.ConsulPrefix = "127.0.0.1:1", "duefleet"
	broken := settings
	broken.ConsulAddr, broken.ConsulPrefix = servertest.Consul(t)
	putDocument(t, broken, "orders", `{"shards": 2, "declare": {"queue": "orders.due", "queue_type": "classic"}}`)
	putDocument(t, broken, "mail", "decl: broken")
	for name, settings := range map[string]fleet.Settings{"Consul is away": away, "one document is broken": broken} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newService(t, settings, secrets).start()
			run.await("healthcheck", "--live")
			if err := run.stop(); err != nil {
				t.Errorf("%v:\n%s", err, run.log)
			}
		})
	}
	t.Run("a mistake", func(t *testing.T) {
		t.Parallel()
		wrong := settings
		wrong.Topics = map[string]fleet.Topic{"orders": {"shards": 0}}
		run := newService(t, wrong, secrets).start()
		if err := check.Receive(t, "the scanner to end", run.ended); err == nil ||
			!strings.Contains(run.log.String(), "topics.orders.shards") {
			t.Errorf("%v, and the log doesn't name the mistake:\n%s", err, run.log)
		}
	})
}

// admit makes a Redis user with all rights, until the test ends.
func admit(t *testing.T, addr, user, password string) {
	t.Helper()
	rdb := redis.NewUniversalClient(servertest.RedisOptions(addr))
	t.Cleanup(func() { _ = rdb.Close() })
	check.OK(t, rdb.Do(t.Context(), "ACL", "SETUSER", user, "on", ">"+password, "~*", "&*", "+@all").Err())
	t.Cleanup(func() { _ = rdb.Do(check.Context(t), "ACL", "DELUSER", user).Err() })
}

func newService(t *testing.T, settings fleet.Settings, secrets map[string]string) *service {
	t.Helper()
	dir, err := os.MkdirTemp("", "duefleet-unit-") // t.TempDir may be in a folder that other users can't enter
	check.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &service{t: t, dir: dir, unit: file(t, "deploy/systemd/"+unit)}
	s.admin, err = fleet.FreeAddress(t.Context())
	check.OK(t, err)
	config := filepath.Join(dir, "scanner.yaml")
	program, err := os.ReadFile(programs.Scanner)
	if err == nil {
		err = fleet.WriteConfig(config, settings.Document())
	}
	err = errors.Join(err, os.Mkdir(filepath.Join(dir, "credentials"), 0o700),
		os.WriteFile(filepath.Join(dir, "scanner"), program, 0o600),
		os.Chmod(dir, 0o755), os.Chmod(config, 0o644), os.Chmod(filepath.Join(dir, "scanner"), 0o755)) //nolint:gosec // another user reads them
	for name, content := range secrets {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	check.OK(t, err)
	s.load(file(t, "deploy/systemd/credentials.conf"))
	for name := range secrets {
		cat := s.as("cat", filepath.Join(dir, name))
		if said := refused(t, cat); !strings.Contains(said, "Permission denied") {
			t.Fatalf("the service's user could read %s: %s", name, said)
		}
	}
	return s
}

// load gives the service its credentials: files that only its user can read, and the
// variables that name them.
func (s *service) load(conf string) {
	s.t.Helper()
	given := filepath.Join(s.dir, "credentials")
	err := os.Chown(given, nobody, nobody)
	for _, m := range regexp.MustCompile(`(?m)^LoadCredential=([^:]+):(.+)$`).FindAllStringSubmatch(conf, -1) {
		content, reading := os.ReadFile(s.path(m[2]))
		path := filepath.Join(given, m[1])
		err = errors.Join(err, reading, os.WriteFile(path, content, 0o400), os.Chown(path, nobody, nobody))
	}
	if err = errors.Join(err, os.Chmod(given, fs.FileMode(0o500))); err != nil {
		s.t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^Environment=(.+)$`).FindAllStringSubmatch(conf, -1) {
		s.env = append(s.env, strings.ReplaceAll(m[1], "%d", given))
	}
}

// path returns the path here of a file that the unit names.
func (s *service) path(name string) string { return filepath.Join(s.dir, filepath.Base(name)) }

// start runs the unit's start commands in order: each ExecStartPre must succeed before
// ExecStart runs.
func (s *service) start() *running {
	s.t.Helper()
	for _, before := range s.commands("ExecStartPre") {
		if out, err := before.CombinedOutput(); err != nil {
			s.t.Fatalf("systemd would not start the scanner: %s: %v\n%s", before, err, out)
		}
	}
	commands := s.commands("ExecStart")
	if len(commands) != 1 {
		s.t.Fatalf("the unit has %d ExecStart, want one", len(commands))
	}
	run := &running{service: s, cmd: commands[0], log: &check.Log{}, ended: make(chan error, 1)}
	run.cmd.Stderr = run.log
	check.OK(s.t, run.cmd.Start())
	go func() { run.ended <- run.cmd.Wait() }()
	s.t.Cleanup(func() { _ = run.cmd.Process.Kill() })
	return run
}

// commands returns the unit's commands under a key.
func (s *service) commands(key string) (all []*exec.Cmd) {
	for _, m := range regexp.MustCompile(`(?m)^`+key+`=(.+)$`).FindAllStringSubmatch(s.unit, -1) {
		words := strings.Fields(m[1])
		for i, word := range words {
			if filepath.IsAbs(word) {
				words[i] = s.path(word)
			}
		}
		all = append(all, s.as(words[0], words[1:]...))
	}
	return all
}

// running is a scanner that the unit started.
type running struct {
	service *service
	cmd     *exec.Cmd
	log     *check.Log
	ended   chan error
}

// await waits until a command of the scanner succeeds, or until the scanner has ended.
func (r *running) await(verb ...string) {
	r.service.t.Helper()
	verb = append(verb, "--config", r.service.path("scanner.yaml"))
	check.Until(r.service.t, "the scanner to be healthy, or to end", func() bool {
		return len(r.ended) > 0 || r.service.as(r.service.path("scanner"), verb...).Run() == nil
	})
}

// stop ends the scanner as systemd does, and returns its error.
func (r *running) stop() error {
	r.service.t.Helper()
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	return check.Receive(r.service.t, "the scanner to end", r.ended)
}

// as runs a command as the service's user.
func (s *service) as(name string, args ...string) *exec.Cmd {
	cmd := command(s.t, nil, name, args...)
	cmd.Dir = "/"
	cmd.Env = append(environ("DUEFLEET_ADMIN_LISTEN="+s.admin), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}
