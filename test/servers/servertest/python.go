package servertest

import (
	"os/exec"
	"testing"
)

// Python returns a Python interpreter that has a module. Debian's package of the module is
// python3-<module>, which `make test-tools` installs where it can.
func Python(t testing.TB, module string) string {
	t.Helper()
	for _, path := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), path, "-c", "import "+module).Run() == nil { //nolint:gosec // our own arguments
			return path
		}
	}
	missing(t, "no Python with "+module+" is installed; on Debian: apt-get install python3-"+module)
	return ""
}
