package duefleettest

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	_ "embed"
	"encoding/hex"
	"net"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

//go:embed bridge.lua
var bridgeLua string

// memory is a Redis in this process, whose clock the test moves. It executes the scripts
// unchanged, after a line of Lua that adds what miniredis lacks.
type memory struct {
	mini   *miniredis.Miniredis
	client *redis.Client
	bridge string

	mu    sync.Mutex
	texts map[string]string // of scripts, with the bridge, by the hash of the original
}

// newMemory starts the server. It listens at no port.
func newMemory() (*memory, error) {
	m := &memory{mini: miniredis.NewMiniRedis(), bridge: oneLine(bridgeLua), texts: map[string]string{}}
	m.mini.ClockTTL(true)
	conn, err := m.mini.Dial() // it starts the server
	if err != nil {
		return nil, err
	}
	_ = conn.Close()
	nobody := func(c *server.Peer, _ string, _ []string) { c.WriteInt(0) }
	if err := m.mini.Server().Register("SPUBLISH", nobody); err != nil {
		return nil, err
	}
	m.mini.Server().SetPreHook(m.intercept)
	m.client = redis.NewClient(&redis.Options{
		Addr:            "duefleettest",
		Dialer:          func(context.Context, string, string) (net.Conn, error) { return m.mini.Dial() },
		Protocol:        2,
		DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
		// otherwise the client looks the address up in DNS
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return m, nil
}

func (m *memory) close() {
	_ = m.client.Close()
	m.mini.Close()
}

// intercept executes some commands in another form, and returns false for all others.
func (m *memory) intercept(c *server.Peer, command string, args ...string) bool {
	var other []string
	switch command {
	case "EVAL", "EVALSHA":
		if text := m.text(command, args); text != "" {
			other = append([]string{"EVAL", text}, args[1:]...)
		}
	case "ZCOUNT", "ZRANGEBYSCORE", "ZREVRANGEBYSCORE", "ZREMRANGEBYSCORE":
		other = exclusive(command, args)
	}
	if other == nil {
		return false
	}
	m.mini.Server().Dispatch(c, other)
	return true
}

// text returns the script that EVAL or EVALSHA names, with the bridge in place of its first
// line, which is "#!lua" with flags. It returns "" for a script without that line, as one
// with the bridge is.
func (m *memory) text(command string, args []string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(args) == 0 {
		return ""
	}
	if command == "EVALSHA" {
		return m.texts[args[0]]
	}
	first, body, _ := strings.Cut(args[0], "\n")
	if !strings.HasPrefix(first, "#!lua") {
		return ""
	}
	hash := sha1.Sum([]byte(args[0])) //nolint:gosec // as above
	text := m.bridge + "\n" + body
	m.texts[hex.EncodeToString(hash[:])] = text
	return text
}

// exclusive words the ends of a range "(+inf" and "(-inf" in another way, because miniredis
// takes them for inclusive. It returns nil if there are none.
func exclusive(command string, args []string) []string {
	all, found := append([]string{command}, args...), false
	for i, arg := range all {
		switch strings.ToLower(arg) {
		case "(+inf":
			all[i], found = "(infinity", true
		case "(-inf":
			all[i], found = "(-infinity", true
		}
	}
	if !found {
		return nil
	}
	return all
}

// oneLine joins the lines of a Lua text and leaves out those that are comments.
func oneLine(text string) string {
	var code []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "--") {
			code = append(code, line)
		}
	}
	return strings.Join(code, " ")
}
