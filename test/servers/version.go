package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Version asks the server and returns its name and version, as in "Valkey 9.1.2".
func (r *Redis) Version(ctx context.Context) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askLimit)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("INFO server\r\nQUIT\r\n")); err != nil {
		return "", err
	}
	redis := ""
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		field, version, _ := strings.Cut(lines.Text(), ":")
		switch field {
		case "valkey_version": // after the version of the Redis that it replaces
			return "Valkey " + version, nil
		case "redis_version":
			redis = "Redis " + version
		}
	}
	if redis == "" {
		return "", errors.New("INFO has no version")
	}
	return redis, nil
}

// Version asks the node and returns its version, as in "RabbitMQ 4.3.6".
func (r *RabbitMQ) Version(ctx context.Context) (string, error) {
	conn, err := r.connect(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return fmt.Sprint("RabbitMQ ", conn.Properties["version"]), nil
}
