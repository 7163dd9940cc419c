package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/task"
)

// advice is what to do about an error that does not say so itself.
func advice(err error) string {
	var unreachable *net.OpError
	var unknownName *net.DNSError
	text := err.Error()
	switch {
	case errors.Is(err, task.ErrExists):
		return "; without --if-absent it is replaced"
	case errors.Is(err, context.Canceled):
		return "; interrupted"
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"):
		return "; check redis.username and redis.password in --config, or DUEFLEET_REDIS_USERNAME and DUEFLEET_REDIS_PASSWORD"
	case strings.Contains(text, "tls: "), strings.Contains(text, "NOPERM"), errors.Is(err, io.EOF):
		return config.Advice("redis", text)
	case errors.As(err, &unreachable), errors.As(err, &unknownName), errors.Is(err, context.DeadlineExceeded):
		return "; check that Redis runs there, and --redis-addr, --config or DUEFLEET_REDIS_ADDRS"
	default:
		return ""
	}
}
