package deploy_test

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestRelease builds a release for this machine's architecture. The programs are static and
// know their version, the checksums are right, and the lists of modules name a module that
// each program needs.
func TestRelease(t *testing.T) {
	t.Parallel()
	dist := filepath.Join(t.TempDir(), "dist")
	must(t, command(t, nil, "make", "-C", root, "--silent", "--no-print-directory", "release", "DIST="+dist,
		"ARCHES="+runtime.GOARCH))
	for line := range strings.Lines(read(t, filepath.Join(dist, "SHA256SUMS"))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got := sha256.Sum256([]byte(read(t, filepath.Join(dist, name)))); hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s has another checksum", name)
		}
	}
	archives, err := filepath.Glob(filepath.Join(dist, "*.tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("archives: %v %v", archives, err)
	}
	must(t, command(t, nil, "tar", "-C", dist, "-xzf", archives[0]))
	folder := strings.TrimSuffix(archives[0], ".tar.gz")
	for program, module := range map[string]string{"scanner": "github.com/rabbitmq/amqp091-go",
		"producer": "github.com/redis/go-redis/v9"} {
		path := filepath.Join(folder, program)
		if version := must(t, command(t, nil, path, "version")); !strings.HasPrefix(version, program+" 0.1.0, commit ") {
			t.Errorf("%s says %q", program, version)
		}
		isStatic(t, path)
		if !names(t, folder+"_"+program+".cdx.json", module) {
			t.Errorf("the list of modules of %s lacks %s", program, module)
		}
	}
}

// isStatic fails unless a program needs no shared library.
func isStatic(t *testing.T, path string) {
	t.Helper()
	program, err := elf.Open(path)
	check.OK(t, err)
	defer func() { _ = program.Close() }()
	if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 ||
		program.Section(".interp") != nil {
		t.Errorf("%s needs %v %v", path, libraries, err)
	}
}

// names reports whether an SBOM in the format of CycloneDX names a module.
func names(t *testing.T, path, module string) bool {
	t.Helper()
	var bom struct{ Components []struct{ Name string } }
	check.OK(t, json.Unmarshal([]byte(read(t, path)), &bom))
	for _, c := range bom.Components {
		if c.Name == module {
			return true
		}
	}
	return false
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path) //nolint:gosec // a file of this test's
	check.OK(t, err)
	return string(content)
}
