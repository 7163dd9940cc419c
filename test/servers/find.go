package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// cachedTools is the folder below the repository's root where the Makefile links the
// tools that it built.
const cachedTools = ".dev/bin"

// chosenVar names a folder whose programs win over those that are installed. make compat
// sets it, to test with servers of other versions.
const chosenVar = "DUEFLEET_TEST_SERVERS"

// known tells where a server may be installed besides PATH, and how to install it.
type known struct {
	// before are paths that win over PATH.
	before []string
	// after are paths to try if PATH doesn't have the server.
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
		// Debian's rabbitmq-server on PATH is a script that changes the user and the folder.
		return known{
			before:  []string{"/usr/lib/rabbitmq/bin/rabbitmq-server"},
			after:   []string{"/usr/local/sbin/rabbitmq-server", "/opt/homebrew/sbin/rabbitmq-server"},
			install: "apt-get install rabbitmq-server",
		}, true
	case "postgres", "initdb", "pg_isready", "psql":
		// Debian has one folder a version, and none of them on PATH. The newest is the last.
		found, _ := filepath.Glob(filepath.Join("/usr/lib/postgresql/*/bin", name)) // the pattern is good
		slices.Reverse(found)
		return known{before: found, install: "apt-get install postgresql"}, true
	case "mariadbd", "mariadb-install-db", "mariadb-admin", "mariadb":
		return known{
			after:   []string{"/usr/sbin/" + name, "/usr/bin/" + name, "/opt/homebrew/bin/" + name},
			install: "apt-get install mariadb-server",
		}, true
	case "chromium":
		return known{after: []string{"/usr/bin/chromium"}, install: "apt-get install chromium"}, true
	case "consul":
		return known{install: "make consul"}, true
	}
	return known{}, false
}

// Find returns the path of redis-server, rabbitmq-server, consul, chromium or a program of
// PostgreSQL or MariaDB. It searches the folder that DUEFLEET_TEST_SERVERS names, PATH, the folders where
// Debian and Homebrew install them, and the tools that make has built. The error is one
// line that names the missing program and the command that installs it.
func Find(name string) (string, error) {
	k, ok := knownServer(name)
	if !ok {
		return "", fmt.Errorf("find %s: not a server that tests know", name)
	}
	if path := findChosen(name); path != "" {
		return path, nil
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

// findChosen looks in the folder that the variable names.
func findChosen(name string) string {
	dir := os.Getenv(chosenVar)
	if dir == "" {
		return ""
	}
	return firstExecutable([]string{filepath.Join(dir, name)})
}

// findCached looks for cachedTools in the working directory and above it, because tests
// run in the folder of their package.
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
