package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
)

// Ports are chosen below Linux's ephemeral range (32768 and up). In that range, a client
// that dials a server which is down can get the server's port as its own. It then
// connects to itself and keeps the server from starting again.
const (
	lowestPort  = 12000
	highestPort = 32000
)

// ports are the free ports chosen for one server. They stay reserved while this value is
// referenced.
type ports struct {
	held []io.Closer
}

// choose returns port, or a free port if port is 0.
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

// checkFree returns an error if something listens on addr. It dials instead of listening.
// A listening socket could be inherited by a server that another goroutine starts at this
// moment, which would find the port in use.
func checkFree(ctx context.Context, addr string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil //nolint:nilerr // no answer: the port is free
	}
	return errors.Join(fmt.Errorf("port is taken: something listens on %s", addr), conn.Close())
}
