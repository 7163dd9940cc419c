package deploy_test

import (
	"bytes"
	"debug/elf"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// nobody is the image's user ID, which has no name in any file.
const nobody = 65532

// image is the root file system that rootfs.sh builds for the Containerfile.
type image struct {
	t     *testing.T
	dir   string
	admin string
}

// TestImage: a scanner runs with the image's root file system as its root and as the
// image's user, without write access. It delivers, reports its health, and stops.
func TestImage(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skip(t, "changing the root folder needs root; as another user only the programs are built")
	}
	servertest.Need(t, "redis-server", "rabbitmq-server")
	img := buildImage(t)
	addr, prefix := servertest.Redis(t)
	settings := fleet.Settings{
		RedisAddr: addr, RedisPrefix: prefix, RabbitMQURL: servertest.RabbitMQ(t), ShutdownTimeout: check.Hang.String(),
		Topics: map[string]fleet.Topic{"orders": {
			"shards": 2, "declare": map[string]any{"queue": "orders.due", "queue_type": "classic"},
		}},
	}
	img.configure(settings)

	if said := refused(t, img.command("scanner", "healthcheck", "--config",
		"/etc/duefleet/scanner.yaml")); !strings.Contains(said, "refused") {
		t.Errorf("healthcheck with no scanner says %q, want that the connection was refused", said)
	}
	scanner, log := img.start()
	img.awaitHealthy()
	must(t, img.command("scanner", "healthcheck", "--live", "--timeout", check.Hang.String(), "--config",
		"/etc/duefleet/scanner.yaml"))
	img.checkVersion()
	must(t, img.command("producer", "schedule", "--config", "/etc/duefleet/scanner.yaml",
		"--topic", "orders", "--id", "o-1", "--in", "0s", "--payload", "hello"))
	if got := receive(t, settings.RabbitMQURL, "orders.due"); got != "hello" {
		t.Errorf("received %q, want hello", got)
	}

	check.OK(t, scanner.Process.Signal(syscall.SIGTERM))
	if err := scanner.Wait(); err != nil {
		t.Errorf("the scanner ended with %v, want code 0:\n%s", err, log)
	}
	img.untouched()
}

// buildImage builds the folder, and removes all write permissions.
func buildImage(t *testing.T) *image {
	t.Helper()
	dir, err := os.MkdirTemp("", "duefleet-image-") // t.TempDir may be in a folder that other users can't enter
	check.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	build := command(t, nil, filepath.Join(root, "deploy/container/rootfs.sh"), dir)
	build.Env = environ("GOGC=400", // as in the Makefile: less time for more memory
		"GOFLAGS=-buildvcs=false", // as without .git, which the image's build has not
		"VERSION="+imageVersion, "COMMIT="+imageCommit)
	must(t, build)
	admin, err := fleet.FreeAddress(t.Context())
	check.OK(t, err)
	for _, program := range []string{"scanner", "producer"} {
		checkStatic(t, filepath.Join(dir, program))
	}
	return &image{t: t, dir: dir, admin: admin}
}

// checkVersion checks that the programs, the fleet and the metrics report the image's
// version.
func (m *image) checkVersion() {
	m.t.Helper()
	for _, program := range []string{"scanner", "producer"} {
		if said, want := must(m.t, m.command(program, "version")),
			program+" "+imageVersion+", commit "+imageCommit+","; !strings.HasPrefix(said, want) {
			m.t.Errorf("version prints %q, want %q", said, want)
		}
	}
	check.Until(m.t, "status to name the version", func() bool {
		return strings.Contains(must(m.t, m.command("scanner", "status", "--config", "/etc/duefleet/scanner.yaml")),
			imageVersion)
	})
	request, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, "http://"+m.admin+"/metrics", nil)
	check.OK(m.t, err)
	response, err := http.DefaultClient.Do(request)
	check.OK(m.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check.OK(m.t, err)
	for _, label := range []string{`version="` + imageVersion + `"`, `revision="` + imageCommit + `"`} {
		if !regexp.MustCompile(`(?m)^duefleet_build_info\{[^}]*` + label).Match(body) {
			m.t.Errorf("duefleet_build_info lacks %s", label)
		}
	}
}

// checkStatic checks that the program needs no loader and no library.
func checkStatic(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	check.OK(t, err)
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("%s needs %q, %v; want a static program", path, libraries, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s names a loader; want a static program", path)
		}
	}
}

// configure writes the configuration where the image's command expects it, and makes
// everything read-only.
func (m *image) configure(settings fleet.Settings) {
	m.t.Helper()
	path := filepath.Join(m.dir, "etc/duefleet/scanner.yaml")
	check.OK(m.t, fleet.WriteConfig(path, settings.Document()))
	err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o444)
		if d.IsDir() || filepath.Dir(path) == m.dir {
			mode = 0o555
		}
		return os.Chmod(path, mode)
	})
	check.OK(m.t, err)
}

// command returns a command that runs a program of the image as the container would.
func (m *image) command(program string, args ...string) *exec.Cmd {
	m.t.Helper()
	cmd := command(m.t, nil, "/"+program, args...)
	cmd.Err = nil // the path is valid inside the image
	cmd.Dir = "/"
	cmd.Env = []string{"DUEFLEET_ADMIN_LISTEN=" + m.admin}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.dir, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// start runs the image's command.
func (m *image) start() (*exec.Cmd, *bytes.Buffer) {
	m.t.Helper()
	cmd := m.command("scanner", "run", "--config", "/etc/duefleet/scanner.yaml")
	log := &bytes.Buffer{}
	cmd.Stderr = log
	check.OK(m.t, cmd.Start())
	m.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, log
}

func (m *image) awaitHealthy() {
	m.t.Helper()
	var said []byte
	defer func() {
		if m.t.Failed() {
			m.t.Logf("the last healthcheck said: %s", said)
		}
	}()
	check.Until(m.t, "the scanner to be healthy", func() bool {
		var err error
		said, err = m.command("scanner", "healthcheck", "--config", "/etc/duefleet/scanner.yaml").CombinedOutput()
		return err == nil
	})
}

// untouched checks that the image has only the files that it was built with.
func (m *image) untouched() {
	m.t.Helper()
	var files []string
	err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, m.dir))
		}
		return err
	})
	check.OK(m.t, err)
	want := "/etc/duefleet/scanner.yaml /etc/ssl/certs/ca-certificates.crt /producer /scanner"
	if got := strings.Join(files, " "); got != want {
		m.t.Errorf("the image holds %s, want %s", got, want)
	}
}

// receive returns the body of one message from a queue. A scanner that is ready may declare it later.
func receive(t *testing.T, url, queue string) string {
	t.Helper()
	awaitQueue(t, url, queue)
	ch := servertest.Channel(t, url)
	messages, err := ch.Consume(queue, "", true, false, false, false, nil)
	check.OK(t, err)
	return string(check.Receive(t, "a message in "+queue, messages).Body)
}

// TestContainerfile: the image has that root file system and nothing else, and runs
// without root.
func TestContainerfile(t *testing.T) {
	t.Parallel()
	text := file(t, "deploy/container/Containerfile")
	_, final, ok := strings.Cut(text, "\nFROM scratch\n")
	if !ok {
		t.Fatal("the image is not made from scratch")
	}
	for _, line := range []string{
		"COPY --from=build /out/ /\n", "ENV DUEFLEET_ADMIN_LISTEN=0.0.0.0:9320\nEXPOSE 9320\n", "USER 65532:65532\n",
		`ENTRYPOINT ["/scanner"]`, `CMD ["run", "--config", "/etc/duefleet/scanner.yaml"]`,
	} {
		if !strings.Contains(final, line) {
			t.Errorf("the image lacks %q", line)
		}
	}
	if !strings.Contains(text, "ARG VERSION\nARG COMMIT\nRUN deploy/container/rootfs.sh /out\n") {
		t.Error("the image's files are not those of rootfs.sh, or it isn't given VERSION and COMMIT")
	}
	if n := strings.Count(final, "COPY "); n != 1 {
		t.Errorf("the image copies %d times, want once", n)
	}
}

// TestMakeImage: make image passes the version and the commit of the checkout.
func TestMakeImage(t *testing.T) {
	t.Parallel()
	head, err := command(t, nil, "git", "-C", root, "rev-parse", "HEAD").Output()
	if err != nil {
		skip(t, "this is no checkout of git, which knows the commit")
	}
	said := must(t, command(t, nil, "make", "-C", root, "--silent", "--no-print-directory", "image", "DOCKER=echo",
		"IMAGE=shop:1"))
	commit := strings.TrimSpace(string(head))
	want := `^build -f deploy/container/Containerfile -t shop:1 --build-arg VERSION=\S+ --build-arg COMMIT=` + commit +
		`(-dirty)? \.\n$`
	if !regexp.MustCompile(want).MatchString(said) {
		t.Errorf("make image runs %q, want %q", said, want)
	}
}
