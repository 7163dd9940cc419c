package luascript

import (
	"bufio"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Leaks(m)) }

// opened returns the Server at an address.
func opened(t *testing.T, addr string, change func(*redis.UniversalOptions)) *Server {
	t.Helper()
	options := &redis.UniversalOptions{Addrs: []string{addr}, DialTimeout: check.Hang, ReadTimeout: check.Hang,
		WriteTimeout: check.Hang, DisableIdentity: true}
	if change != nil {
		change(options)
	}
	s := Open(Dialing(options))
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// answering is a server that answers each command by its name, and others with an error.
// While up is false it closes its connections.
func answering(t *testing.T, up *atomic.Bool, answers map[string]string) (addr string) {
	t.Helper()
	addr, _ = front(t, func(_ int64, conn net.Conn) {
		defer conn.Close()
		for lines := bufio.NewScanner(conn); up.Load() && lines.Scan(); {
			if !strings.HasPrefix(lines.Text(), "*") || !lines.Scan() || !lines.Scan() { // count, length, name
				continue
			}
			answer, ok := answers[strings.ToLower(lines.Text())]
			if !ok {
				answer = "-ERR unknown command"
			}
			_, _ = conn.Write([]byte(answer + "\r\n"))
		}
	})
	return addr
}

const (
	saysClusterMode = "%1\r\n$4\r\nmode\r\n$7\r\ncluster"
	noSlots         = "*0"
)

// TestTheKindOfClient: one address gets a cluster's client only if the server runs in
// cluster mode and knows the command for the slots.
func TestTheKindOfClient(t *testing.T) {
	t.Parallel()
	up := &atomic.Bool{}
	up.Store(true)
	for name, test := range map[string]struct {
		answers map[string]string
		cluster bool
	}{
		"no HELLO":          {nil, false},
		"one server":        {map[string]string{"hello": "%1\r\n$4\r\nmode\r\n$10\r\nstandalone", "cluster": noSlots}, false},
		"a proxy":           {map[string]string{"hello": saysClusterMode}, false},
		"a cluster":         {map[string]string{"hello": saysClusterMode, "cluster": noSlots}, true},
		"a cluster, denied": {map[string]string{"hello": saysClusterMode, "cluster": "-NOPERM no such command"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := opened(t, answering(t, up, test.answers), nil)
			check.OK(t, s.Find(t.Context()))
			if _, is := s.Known().(*redis.ClusterClient); is != test.cluster {
				t.Errorf("got a %T", s.Known())
			}
			if s.Client(t.Context()) != s.Known() {
				t.Error("the client changes")
			}
		})
	}
}

// TestAClusterThatComesLater: as long as the server doesn't answer, each call asks again.
func TestAClusterThatComesLater(t *testing.T) {
	t.Parallel()
	up := &atomic.Bool{}
	s := opened(t, answering(t, up, map[string]string{"hello": saysClusterMode, "cluster": noSlots}), nil)
	if err := s.Find(t.Context()); err == nil {
		t.Error("no error while the server is down")
	}
	if _, is := s.Client(t.Context()).(*redis.Client); !is {
		t.Errorf("got a %T while the server is down", s.Known())
	}
	up.Store(true)
	if _, is := s.Client(t.Context()).(*redis.ClusterClient); !is {
		t.Errorf("got a %T", s.Known())
	}
}

// TestAClusterNamesTheMissingRight of a user who may not ask for its slots.
func TestAClusterNamesTheMissingRight(t *testing.T) {
	t.Parallel()
	servertest.Need(t, "redis-server")
	cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterConfig{Dir: t.TempDir(), Masters: 3})
	check.OK(t, err)
	t.Cleanup(func() { _ = cluster.Kill() })
	node := cluster.Nodes[0]
	admin := redis.NewClient(&redis.Options{Addr: node.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	check.OK(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", "nopass", "~*", "+@all", "-cluster").Err())
	as := func(o *redis.UniversalOptions) { o.Username, o.Password = "app", "any" }
	err = opened(t, node.Addr(), as).Client(t.Context()).Get(t.Context(), "a").Err()
	if !Denied(err) || !strings.Contains(err.Error(), "'cluster|slots' command") {
		t.Errorf("got %v", err)
	}
}

// TestOptionsThatNameTheKind: with several addresses or IsClusterMode, nobody is asked.
func TestOptionsThatNameTheKind(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*redis.UniversalOptions){
		"several addresses": func(o *redis.UniversalOptions) { o.Addrs = []string{"127.0.0.1:1", "127.0.0.1:2"} },
		"cluster mode":      func(o *redis.UniversalOptions) { o.IsClusterMode = true },
		"sentinels":         func(o *redis.UniversalOptions) { o.MasterName = "mymaster" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check.OK(t, opened(t, "127.0.0.1:1", change).Find(t.Context()))
		})
	}
}
