package redisdial

import (
	"errors"
	"net"
	"strconv"
	"strings"
)

// AddrForm is the form of an address, for errors.
const AddrForm = "must be host:port, as in 127.0.0.1:6379"

// AddrMistake returns what is wrong with the address of a Redis in a file or a flag, as in
// "is empty", or "". The text never quotes the address, because a URL may hold a password.
func AddrMistake(addr string) string {
	host, port, mistake := split(addr)
	switch {
	case mistake != "":
		return mistake
	case host == "":
		return "has no host"
	case strings.Contains(host, " "):
		return "has a blank"
	case !isNumber(port):
		return wantPort
	}
	return ""
}

// OptionMistake is AddrMistake for an address in the options of go-redis. It also accepts
// the path of a Unix socket, an empty host and the name of a port. With the caller's own
// dialer it accepts names without a port, too.
func OptionMistake(addr string, ownDialer bool) string {
	_, _, mistake := split(addr)
	if addr != "" && !isURL(addr) && (ownDialer || strings.HasPrefix(addr, "/")) {
		return ""
	}
	return mistake
}

const wantPort = "needs a port of 1 to 65535"

// split returns the parts of an address, and the mistake that no kind of address may have.
// A URL with a comma in it may have become two addresses, each with a "/" or an "@".
func split(addr string) (host, port, mistake string) {
	if addr == "" {
		return "", "", "is empty"
	}
	if isURL(addr) || strings.Contains(addr, "/") {
		return "", "", "is a URL: user, password and TLS are settings of their own"
	}
	host, port, err := net.SplitHostPort(addr)
	var wrong *net.AddrError
	if errors.As(err, &wrong) {
		return "", "", "has " + strings.Replace(strings.TrimSuffix(wrong.Err, " in address"), "missing", "no", 1)
	}
	if n, err := strconv.Atoi(port); port == "" || err == nil && (n < 1 || n > 65535) {
		return "", "", wantPort
	}
	return host, port, ""
}

func isURL(addr string) bool { return strings.Contains(addr, "://") || strings.Contains(addr, "@") }

func isNumber(port string) bool {
	_, err := strconv.Atoi(port)
	return err == nil
}
