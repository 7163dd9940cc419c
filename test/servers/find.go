package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// cachedTools is where the Makefile links what it built, below the root of the
// repository.
const cachedTools = ".dev/bin"

// known says where a server lies when it isn't on PATH, and how to get it.
type known struct {
	// before are places that win over PATH.
	before []string
	// after are places that are tried when PATH has none.
	after   []string
	install string
}

func knownServer(name string) (known, bool) {
	switch name {
	case "redis-server":
		return known{
			after:   []string{"/usr/bin/redis-server", "/usr/local/bin/redis-server", "/opt/homebrew/bin/redis-server"},
			install: "apt-get install redis-server",
		}, true
	case "rabbitmq-server":
		// What Debian has on PATH changes the user and the folder.
		return known{
			before:  []string{"/usr/lib/rabbitmq/bin/rabbitmq-server"},
			after:   []string{"/usr/local/sbin/rabbitmq-server", "/opt/homebrew/sbin/rabbitmq-server"},
			install: "apt-get install rabbitmq-server",
		}, true
	case "consul":
		return known{install: "make consul"}, true
	}
	return known{}, false
}

// Find returns the path of redis-server, rabbitmq-server or consul: from PATH,
// the places where Debian and Homebrew put it, or the tools that make built.
// The error is one line with what is missing and the command that installs it.
func Find(name string) (string, error) {
	k, ok := knownServer(name)
	if !ok {
		return "", fmt.Errorf("find %s: not a server that tests know", name)
	}
	if path := firstExecutable(k.before); path != "" {
		return path, nil
	}
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	if path := firstExecutable(k.after); path != "" {
		return path, nil
	}
	if path := findCached(name); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("%s is not installed; to install it: %s", name, k.install)
}

// findCached looks in the cache of this folder and of those above it, because
// tests run in the folder of their package.
func findCached(name string) string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		if path := firstExecutable([]string{filepath.Join(dir, cachedTools, name)}); path != "" {
			return path
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

func firstExecutable(paths []string) string {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}
