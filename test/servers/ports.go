package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
)

// Ports are chosen below Linux's ephemeral range (32768 and up). In that range
// a client that dials a server which is down can be given the server's port as
// its own, connect to itself, and keep the server from coming back.
const (
	lowestPort  = 12000
	highestPort = 32000
)

// ports are the free ports chosen for one server. They stay reserved while it
// is referenced.
type ports struct {
	held []io.Closer
}

// choose returns port, or a free port if it is 0.
func (p *ports) choose(ctx context.Context, port int) (int, error) {
	if port != 0 {
		return port, nil
	}
	const tries = 200
	for range tries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		hold, err := reserve(ctx, port)
		if err != nil {
			continue
		}
		if err := checkFree(ctx, address(port)); err != nil {
			_ = hold.Close()
			continue
		}
		p.held = append(p.held, hold)
		return port, nil
	}
	return 0, errors.New("choose a port: found none free")
}

// checkFree is an error if something listens on addr. It dials: a socket that
// listened here, for a moment, could be inherited by a server that another
// goroutine starts just then, and be found in use.
func checkFree(ctx context.Context, addr string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil //nolint:nilerr // nobody answers: it is free
	}
	return errors.Join(fmt.Errorf("port is taken: something listens on %s", addr), conn.Close())
}
