package deploy_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/duefleet/duefleet/internal/stack/stacktest"
	"github.com/duefleet/duefleet/test/fleet"
)

const composeFile = root + "/deploy/compose/compose.yaml"

// composed is what compose makes of the file, as far as it is looked at here.
type composed struct {
	Services map[string]struct {
		Command     []string          `yaml:"command"`
		Environment map[string]string `yaml:"environment"`
		ReadOnly    bool              `yaml:"read_only"`
		Deploy      struct {
			Replicas int `yaml:"replicas"`
		} `yaml:"deploy"`
		Build struct {
			Context    string `yaml:"context"`
			Dockerfile string `yaml:"dockerfile"`
		} `yaml:"build"`
		Ports []struct {
			HostIP string `yaml:"host_ip"`
		} `yaml:"ports"`
	} `yaml:"services"`
}

// TestCompose: compose reads the file; it names all that a fleet is made of, and
// opens no port to others.
func TestCompose(t *testing.T) {
	t.Parallel()
	var c composed
	if err := yaml.Unmarshal([]byte(must(t, command(t, nil, tool(t, "compose"), composeFile))), &c); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"redis", "rabbitmq", "consul", "topic", "scanner", "producer", "consumer"} {
		if _, there := c.Services[name]; !there {
			t.Errorf("there is no service %s", name)
		}
	}
	if n := c.Services["scanner"].Deploy.Replicas; n != 3 {
		t.Errorf("%d scanners, want 3", n)
	}
	for name, s := range c.Services {
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s opens a port on %q, want 127.0.0.1", name, p.HostIP)
			}
		}
		if s.Build.Dockerfile == "" {
			continue
		}
		if !s.ReadOnly {
			t.Errorf("%s may write to its image", name)
		}
		if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
			t.Errorf("%s can't be built: %v", name, err)
		}
	}
	checkTopic(t, c.Services["topic"].Command)
}

// TestComposeConfig: docker's own reading of the file, where docker has compose.
func TestComposeConfig(t *testing.T) {
	t.Parallel()
	if err := exec.Command("docker", "compose", "version").Run(); err != nil {
		t.Skip("docker has no compose here; TestCompose reads the file with the library it is made of")
	}
	must(t, command(t, nil, "docker", "compose", "-f", composeFile, "config", "--quiet"))
}

// checkTopic runs the command of service topic on a real Consul.
func checkTopic(t *testing.T, args []string) {
	t.Helper()
	stacktest.Need(t, "consul")
	addr, prefix := stacktest.Consul(t)
	cmd := command(t, nil, programs.Scanner, args...)
	cmd.Env = append(os.Environ(), "DUEFLEET_CONSUL_ADDR="+addr, "DUEFLEET_CONSUL_PREFIX="+prefix)
	if got := must(t, cmd); !strings.Contains(got, "topic orders written") {
		t.Errorf("scanner %s says %q", strings.Join(args, " "), got)
	}
}

// TestComposeDemo: with a scanner beside them the demo's producer and consumer
// do what their containers would.
func TestComposeDemo(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Topics = map[string]fleet.Topic{"orders": {"shards": 4, "declare": map[string]any{"queue": "orders.due", "queue_type": "classic"}}}
	startScanner(t, s)
	demo := filepath.Join(t.TempDir(), "demo")
	must(t, command(t, nil, "go", "build", "-o", demo, root+"/deploy/compose/demo"))
	env := append(os.Environ(), "DUEFLEET_REDIS_ADDRS="+s.RedisAddr, "DUEFLEET_REDIS_PREFIX="+s.RedisPrefix, "DUEFLEET_RABBITMQ_URLS="+s.RabbitMQURL)
	produce, consume := command(t, nil, demo, "produce"), command(t, nil, demo, "consume")
	var said output
	produce.Env, consume.Env = env, env
	consume.Stdout, consume.Stderr, produce.Stderr = &said, &said, &said
	for _, cmd := range []*exec.Cmd{produce, consume} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Signal(os.Interrupt)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s ended with %v: %s", cmd.Args[1], err, said.String())
			}
		}()
	}
	arrived := regexp.MustCompile(`[1-9][0-9]* orders were not paid in time`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := fleet.Await(ctx, func() bool { return arrived.MatchString(said.String()) }); err != nil {
		t.Errorf("no order arrived within %s: %s", patience, said.String())
	}
}

// output is what processes print, to be read while they run.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
