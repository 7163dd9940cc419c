package servertest

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/duefleet/duefleet/test/servers"
)

// These variables name servers to use instead of starting new ones.
const (
	redisVar    = "DUEFLEET_TEST_REDIS"
	rabbitmqVar = "DUEFLEET_TEST_RABBITMQ"
	consulVar   = "DUEFLEET_TEST_CONSUL"
)

// shared holds the servers of this test binary. Tests with real servers are affordable
// only if the servers start once.
var shared = kinds{ //nolint:gochecknoglobals // see above
	redis:    lazy{variable: redisVar, binary: "redis-server", start: startRedis},
	rabbitmq: lazy{variable: rabbitmqVar, binary: "rabbitmq-server", start: startRabbitMQ},
	consul:   lazy{variable: consulVar, binary: "consul", start: startConsul},
}

type kinds struct {
	redis, rabbitmq, consul lazy
}

// lazy is a server that starts when the first test asks for it.
type lazy struct {
	variable string
	binary   string
	start    func(dir string) (string, error)

	once sync.Once
	at   string
	err  error
}

// get returns the server's address. If the server isn't installed, the test is skipped,
// or fails where servers are required.
func (l *lazy) get(t testing.TB) string {
	t.Helper()
	if at := os.Getenv(l.variable); at != "" {
		return at
	}
	Need(t, l.binary)
	l.once.Do(func() { l.at, l.err = l.startIn() })
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.at
}

func (l *lazy) startIn() (string, error) {
	dir, err := servers.TempDir("servertest-" + l.binary)
	if err != nil {
		return "", err
	}
	return l.start(dir)
}

func startRedis(dir string) (string, error) {
	r, err := servers.StartRedis(context.Background(), servers.RedisConfig{Dir: dir})
	if err != nil {
		return "", err
	}
	return r.Addr(), nil
}

func startRabbitMQ(dir string) (string, error) {
	r, err := servers.StartRabbitMQ(context.Background(), servers.RabbitMQConfig{Dir: dir, Management: true})
	if err != nil {
		return "", err
	}
	return r.Node(), nil
}

func startConsul(dir string) (string, error) {
	c, err := servers.StartConsul(context.Background(), servers.ConsulConfig{Dir: dir})
	if err != nil {
		return "", err
	}
	return c.Addr(), nil
}
