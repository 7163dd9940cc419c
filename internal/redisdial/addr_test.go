package redisdial_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/internal/redisdial"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	const url = "is a URL: user, password and TLS are settings of their own"
	const port = "needs a port of 1 to 65535"
	for addr, want := range map[string]struct{ inFile, inOptions, withDialer string }{
		"127.0.0.1:6379":         {},
		"redis.example.com:1":    {},
		"[::1]:65535":            {},
		"":                       {"is empty", "is empty", "is empty"},
		"redis://h:6379":         {url, url, url},
		"rediss://h:6379/0":      {url, url, url},
		"redis://:SECRET@h:6379": {url, url, url},
		":SECRET@h:6379":         {url, url, url},
		"h:6379/0":               {url, url, ""},
		"/run/redis.sock":        {url, "", ""},
		"localhost":              {"has no port", "has no port", ""},
		"::1:6379":               {"has too many colons", "has too many colons", ""},
		":6379":                  {"has no host", "", ""},
		"h:redis":                {port, "", ""},
		"h:":                     {port, port, ""},
		"h:0":                    {port, port, ""},
		"h:65536":                {port, port, ""},
		"h:-1":                   {port, port, ""},
		"a b:1":                  {"has a blank", "", ""},
	} {
		if got := redisdial.AddrMistake(addr); got != want.inFile {
			t.Errorf("%q in a file: got %q, want %q", addr, got, want.inFile)
		}
		if got := redisdial.OptionMistake(addr, false); got != want.inOptions {
			t.Errorf("%q in options: got %q, want %q", addr, got, want.inOptions)
		}
		if got := redisdial.OptionMistake(addr, true); got != want.withDialer {
			t.Errorf("%q with a dialer: got %q, want %q", addr, got, want.withDialer)
		}
	}
}

// TestAddressesAreNeverQuoted: no mistake quotes the address. Options accept every
// address that a file may have.
func TestAddressesAreNeverQuoted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		addr := rapid.StringMatching(`(redis://)?(u?:SECRET@)?[a-z0-9./ :\[\]]{0,12}(:[0-9]{1,6})?`).Draw(t, "addr")
		file, option := redisdial.AddrMistake(addr), redisdial.OptionMistake(addr, false)
		if strings.Contains(file+option, "SECRET") {
			t.Fatalf("%q: %s, %s", addr, file, option)
		}
		if file == "" && (option != "" || redisdial.OptionMistake(addr, true) != "") {
			t.Fatalf("%q is accepted in a file, but not in options: %s", addr, option)
		}
	})
}
