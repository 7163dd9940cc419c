package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

const composeFile = root + "/deploy/compose/compose.yaml"

// composed is the part of compose's output that tests read.
type composed struct {
	Services map[string]composedService `yaml:"services"`
}

// composedService is one service of it.
type composedService struct {
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	ReadOnly    bool              `yaml:"read_only"`
	Healthcheck struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
	Deploy struct {
		Replicas int `yaml:"replicas"`
	} `yaml:"deploy"`
	Build struct {
		Context    string            `yaml:"context"`
		Dockerfile string            `yaml:"dockerfile"`
		Args       map[string]string `yaml:"args"`
	} `yaml:"build"`
	Ports []struct {
		HostIP string `yaml:"host_ip"`
	} `yaml:"ports"`
}

// composeService returns one service of the file.
func composeService(t *testing.T, name string) composedService {
	t.Helper()
	var c composed
	check.OK(t, yaml.Unmarshal([]byte(must(t, command(t, nil, tool(t, "compose"), composeFile))), &c))
	return c.Services[name]
}

// TestCompose: compose reads the file. The file has all parts of a fleet and opens no
// port to other machines.
func TestCompose(t *testing.T) {
	t.Parallel()
	var c composed
	read := command(t, nil, tool(t, "compose"), composeFile)
	read.Env = environ("VERSION="+imageVersion, "COMMIT="+imageCommit)
	check.OK(t, yaml.Unmarshal([]byte(must(t, read)), &c))
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
		if s.Build.Dockerfile == "deploy/container/Containerfile" && (s.Build.Args["VERSION"] != imageVersion ||
			s.Build.Args["COMMIT"] != imageCommit) {
			t.Errorf("%s is built with %q, want VERSION and COMMIT of the environment", name, s.Build.Args)
		}
	}
	checkTopic(t, c.Services["topic"].Command)
}

// TestComposeConfig: docker compose accepts the file. Without docker compose, the test
// uses its library.
func TestComposeConfig(t *testing.T) {
	t.Parallel()
	if err := command(t, nil, "docker", "compose", "version").Run(); err != nil {
		t.Log("docker has no compose here: its library reads the file")
		must(t, command(t, nil, tool(t, "compose"), composeFile))
		return
	}
	must(t, command(t, nil, "docker", "compose", "-f", composeFile, "config", "--quiet"))
}

// checkTopic runs the command of service topic with a real Consul.
func checkTopic(t *testing.T, args []string) {
	t.Helper()
	servertest.Need(t, "consul")
	addr, prefix := servertest.Consul(t)
	cmd := command(t, nil, programs.Scanner, args...)
	cmd.Env = environ("DUEFLEET_CONSUL_ADDR="+addr, "DUEFLEET_CONSUL_PREFIX="+prefix)
	if got := must(t, cmd); !strings.Contains(got, "topic orders written") {
		t.Errorf("scanner %s says %q", strings.Join(args, " "), got)
	}
}

// TestComposeDemo: the demo's producer and consumer work together with a scanner, as in
// their containers.
func TestComposeDemo(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Topics = map[string]fleet.Topic{"orders": {"shards": 4, "declare": map[string]any{"queue": "orders.due",
		"queue_type": "classic"}}}
	startScanner(t, s)
	demo := filepath.Join(t.TempDir(), "demo")
	must(t, command(t, nil, "go", "build", "-o", demo, root+"/deploy/compose/demo"))
	env := environ("DUEFLEET_REDIS_ADDRS="+s.RedisAddr, "DUEFLEET_REDIS_PREFIX="+s.RedisPrefix,
		"DUEFLEET_RABBITMQ_URLS="+s.RabbitMQURL)
	produce, consume := command(t, nil, demo, "produce"), command(t, nil, demo, "consume")
	var said check.Log
	produce.Env, consume.Env = env, env
	consume.Stdout, consume.Stderr, produce.Stderr = &said, &said, &said
	awaitQueue(t, s.RabbitMQURL, "orders.due")
	for _, cmd := range []*exec.Cmd{produce, consume} {
		check.OK(t, cmd.Start())
		defer func() {
			_ = cmd.Process.Signal(os.Interrupt)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s ended with %v: %s", cmd.Args[1], err, said.String())
			}
		}()
	}
	arrived := regexp.MustCompile(`[1-9][0-9]* orders were not paid in time`)
	check.Until(t, "an order to arrive", func() bool { return arrived.MatchString(said.String()) })
}

// awaitQueue waits until the scanner has declared a queue.
func awaitQueue(t *testing.T, url, queue string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	check.OK(t, err)
	defer conn.Close()
	check.Until(t, "queue "+queue, func() bool {
		ch, err := conn.Channel()
		check.OK(t, err)
		defer ch.Close()
		_, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err == nil
	})
}
