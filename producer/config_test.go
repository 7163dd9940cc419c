package producer

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestAMistakeInTheConfigurationIsNamed: with what to write in its place.
func TestAMistakeInTheConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	there := &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}
	for name, row := range map[string]struct {
		cfg  Config
		want string
	}{
		"no Redis":           {Config{}, "neither Config.Redis nor Config.Options is given"},
		"two of them":        {Config{Redis: rdb, Options: there}, "both Config.Redis and Config.Options are given"},
		"no address":         {Config{Options: &redis.UniversalOptions{}}, "Config.Options.Addrs must name a Redis"},
		"an empty address":   {Config{Options: &redis.UniversalOptions{Addrs: []string{""}}}, "address 1 of Redis: must be host:port; it is empty"},
		"a negative timeout": {Config{Redis: rdb, Timeout: -time.Second}, "Config.Timeout must not be negative; got -1s"},
		"a large payload":    {Config{Redis: rdb, MaxPayload: 1 << 30}, "Config.MaxPayload must be 1 to 16777216 bytes"},
	} {
		if _, err := New(row.cfg); err == nil || !strings.HasPrefix(err.Error(), "producer: ") || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %s", name, err, row.want)
		}
	}
}
