package main

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/outbox"
	"github.com/duefleet/duefleet/outbox/pgxlisten"
)

// open returns a relay with its database, which connects at its first use.
func (f flags) open() (outbox.Relay, error) {
	text := os.Getenv(databaseVar)
	switch {
	case f.databaseFile != "" && text != "":
		return outbox.Relay{}, cli.UsageError("--database-file and " + databaseVar + ": only one may be given")
	case f.databaseFile != "":
		content, err := os.ReadFile(f.databaseFile)
		if err != nil {
			return outbox.Relay{}, fmt.Errorf("read --database-file: %w", err)
		}
		text = strings.TrimSpace(string(content))
	}
	if text == "" {
		return outbox.Relay{}, cli.UsageError("no database: set " + databaseVar + " or --database-file to its URL")
	}
	open := openPostgres
	if strings.HasPrefix(text, "mariadb://") || strings.HasPrefix(text, "mysql://") {
		open = openMariaDB
	}
	relay, err := open(text)
	if err != nil {
		return outbox.Relay{}, fmt.Errorf("%s: %w", cmp.Or(f.databaseFile, databaseVar), err)
	}
	return relay, nil
}

func openPostgres(text string) (outbox.Relay, error) {
	cfg, err := pgx.ParseConfig(text)
	if err != nil {
		return outbox.Relay{}, err // pgx hides the password
	}
	db := stdlib.OpenDB(*cfg)
	return outbox.Relay{DB: db, Listener: pgxlisten.Listener{DB: db}}, nil
}

// openMariaDB reads a URL, as for PostgreSQL. Its query has the parameters of the driver.
func openMariaDB(text string) (outbox.Relay, error) {
	u, err := url.Parse(text)
	if err != nil { // the error can contain parts of the password
		return outbox.Relay{}, errors.New("cannot parse the URL; want mariadb://user:password@host:port/name")
	}
	addr := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	cfg, err := mysql.ParseDSN("tcp(" + addr + ")/" + url.PathEscape(strings.TrimPrefix(u.Path, "/")) + "?" + u.RawQuery)
	if err != nil {
		return outbox.Relay{}, err
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Logger = &mysql.NopLogger{} // the relay logs errors itself
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return outbox.Relay{}, err
	}
	return outbox.Relay{Dialect: outbox.MariaDB, DB: sql.OpenDB(connector)}, nil
}
