package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Machine describes the machine of the measurements.
type Machine struct {
	Processor string  `json:"processor"`
	Cores     int     `json:"cores"`
	MemoryGiB float64 `json:"memory_gib"`
	System    string  `json:"system"`
}

// String names the machine in a line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %s, %d cores, %.0f GiB", m.Processor, m.System, m.Cores, m.MemoryGiB)
}

// ThisMachine reads its description from the kernel.
func ThisMachine() Machine {
	m := Machine{Processor: runtime.GOARCH, Cores: runtime.NumCPU(), System: runtime.GOOS}
	if model := field("/proc/cpuinfo", "model name"); model != "" {
		m.Processor = model
	}
	if kB, err := strconv.ParseFloat(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 64); err == nil {
		m.MemoryGiB = kB / (1 << 20)
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System = "Linux " + strings.TrimSpace(string(b))
	}
	return m
}

// field returns the first value of a key in a file with "key: value" lines.
func field(path, key string) string {
	b, err := os.ReadFile(path) //nolint:gosec // files of /proc
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Versions returns the versions of Go and of the installed servers, programs and
// libraries that the measures use. bench is the folder of this module.
func Versions(ctx context.Context, bench string) []string {
	all := []string{runtime.Version()}
	for _, c := range []struct {
		name, path string
		args       []string
		word       int
	}{
		{"Redis", "redis-server", []string{"--version"}, 2},
		{"RabbitMQ", "dpkg-query", []string{"-W", "-f", "v ${Version}", "rabbitmq-server"}, 1},
		{"beanstalkd", "beanstalkd", []string{"-v"}, 1},
		{"PostgreSQL", "psql", []string{"--version"}, 2},
		{"Node.js", "node", []string{"--version"}, 0},
	} {
		out, err := exec.CommandContext(ctx, c.path, c.args...).Output() //nolint:gosec // the programs above
		words := strings.Fields(string(out))
		if err == nil && len(words) > c.word {
			all = append(all, c.name+" "+strings.TrimPrefix(words[c.word], "v="))
		}
	}
	return append(all, libraries(bench)...)
}

func libraries(bench string) []string {
	var all []string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, name := range []string{"github.com/hibiken/asynq", "github.com/riverqueue/river",
			"github.com/redis/go-redis/v9", "github.com/rabbitmq/amqp091-go"} {
			for _, m := range info.Deps {
				if m.Path == name {
					all = append(all, strings.TrimPrefix(name, "github.com/")+" "+m.Version)
				}
			}
		}
	}
	line := field(filepath.Join(bench, "peers/bullmq/node_modules/bullmq/package.json"), `"version"`)
	if line != "" {
		all = append(all, "BullMQ "+strings.Trim(line, `",`))
	}
	return all
}
