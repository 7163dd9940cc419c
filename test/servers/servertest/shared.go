package servertest

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/duefleet/duefleet/test/servers"
)

// The variables that name servers to use instead of starting some.
const (
	redisVar    = "DUEFLEET_TEST_REDIS"
	rabbitmqVar = "DUEFLEET_TEST_RABBITMQ"
	consulVar   = "DUEFLEET_TEST_CONSUL"
)

// shared are the servers of this test binary: starting them once is what makes
// real servers affordable, and a test binary has no better place for them.
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

// get returns where the server is. A test that needs one that isn't installed
// is skipped, or fails where servers are required.
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
