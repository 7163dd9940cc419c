package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/test/servers"
)

// Redis is one run's server, with its own statistics.
type Redis struct {
	*servers.Redis
	// Client is the harness's client.
	Client *redis.Client
}

// Info returns one section of INFO.
func (r *Redis) Info(ctx context.Context, section string) (map[string]string, error) {
	text, err := r.Client.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("info %s: %w", section, err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}

// CPU returns the CPU time of the main thread, which executes the commands. Redis's
// background threads are not included.
func (r *Redis) CPU(ctx context.Context) (time.Duration, error) {
	info, err := r.Info(ctx, "cpu")
	if err != nil {
		return 0, err
	}
	var total float64
	for _, key := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		seconds, err := strconv.ParseFloat(info[key], 64)
		if err != nil {
			return 0, fmt.Errorf("info cpu: %w", err)
		}
		total += seconds
	}
	return time.Duration(total * float64(time.Second)), nil
}

// Connections returns the number of connections, including the harness's.
func (r *Redis) Connections(ctx context.Context) (int, error) {
	info, err := r.Info(ctx, "clients")
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(info["connected_clients"])
	if err != nil {
		return 0, fmt.Errorf("info clients: %w", err)
	}
	return n, nil
}

// Data returns the memory used by the keys, in bytes: used_memory without the buffers of
// clients, of the append-only file, and other temporary memory.
func (r *Redis) Data(ctx context.Context) (int64, error) {
	info, err := r.Info(ctx, "memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(info["used_memory_dataset"], 10, 64)
}

// Commands returns the number of calls of each command so far, including calls inside
// scripts.
func (r *Redis) Commands(ctx context.Context) (map[string]int64, error) {
	info, err := r.Info(ctx, "commandstats")
	if err != nil {
		return nil, err
	}
	calls := map[string]int64{}
	for key, value := range info {
		_, value, _ = strings.Cut(value, "calls=")
		value, _, _ = strings.Cut(value, ",")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("info commandstats: %s: %w", key, err)
		}
		calls[strings.TrimPrefix(key, "cmdstat_")] = n
	}
	return calls, nil
}

// Total returns the sum over all commands except INFO, which only the harness sends.
func Total(calls map[string]int64) int64 {
	var n int64
	for name, c := range calls {
		if name != "info" {
			n += c
		}
	}
	return n
}

// Quiet waits until Redis neither rewrites its append-only file nor is about to.
func (r *Redis) Quiet(ctx context.Context) error {
	return Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		info, err := r.Info(ctx, "persistence")
		if err != nil {
			return false, err
		}
		return info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0", nil
	})
}

// Sent returns how many commands per second clients send during span. It counts the lines
// of MONITOR, without the commands inside scripts, which MONITOR marks.
func (r *Redis) Sent(ctx context.Context, span time.Duration) (float64, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", r.Addr())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(span)); err != nil {
		return 0, err
	}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, err
	}
	n := -1 // don't count the reply to MONITOR
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return float64(n) / span.Seconds(), nil
		}
		if err != nil {
			return 0, err
		}
		if !strings.Contains(line, " lua] ") {
			n++
		}
	}
}
