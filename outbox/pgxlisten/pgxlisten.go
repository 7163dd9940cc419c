// Package pgxlisten wakes a relay of package outbox through LISTEN and NOTIFY of PostgreSQL,
// with the driver pgx.
package pgxlisten

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Listener listens on one connection of DB. DB may be the relay's. It must use the driver pgx
// and reach the server itself. A pooler in transaction mode passes no notifications on.
type Listener struct{ DB *sql.DB }

// Listen calls wake when it begins to listen on the channel, and after each notification. It
// returns an error when the connection breaks or ctx ends.
func (l Listener) Listen(ctx context.Context, channel string, wake func()) error {
	conn, err := l.DB.Conn(ctx)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", channel, err)
	}
	defer conn.Close()
	var ended error
	err = conn.Raw(func(used any) error {
		c, ok := used.(*stdlib.Conn)
		if !ok {
			ended = fmt.Errorf("the database/sql driver is %T; open the database with the driver pgx", used)
			return nil
		}
		ended = listen(ctx, c.Conn(), channel, wake)
		return driver.ErrBadConn // the pool must not lend a connection that listens
	})
	if errors.Is(err, driver.ErrBadConn) {
		err = nil
	}
	return fmt.Errorf("listen on %s: %w", channel, errors.Join(ended, err))
}

func listen(ctx context.Context, conn *pgx.Conn, channel string, wake func()) error {
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	for {
		wake()
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}
