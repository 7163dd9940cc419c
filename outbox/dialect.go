package outbox

import (
	"context"
	"database/sql"
	"embed"
	"time"
)

// Dialect is a kind of database. The zero value is PostgreSQL, which the functions of this
// package use.
type Dialect int

const (
	// PostgreSQL is version 13 or later.
	PostgreSQL Dialect = iota
	// MariaDB is version 10.6 or later.
	MariaDB
)

// String returns the name of the database.
func (d Dialect) String() string {
	if d == MariaDB {
		return "MariaDB"
	}
	return "PostgreSQL"
}

// statements has the SQL of the outbox for a kind of database.
type statements struct {
	// insertRow has an argument for each column that it names.
	insertRow string
	// takeRows locks rows, each the first of its ID, except topics in the first argument,
	// which commas separate. The second is the largest number of rows. An ID whose first
	// row is locked by another relay has no row here.
	takeRows string
	// deleteRows removes rows, whose numbers are separated by commas.
	deleteRows string
	// setAside sets the column failed, of the row with a number.
	setAside string
	// removeLocks removes locks that no transaction took lately, except locks that are held.
	// The argument is the largest number. It is "" if locks need no removal.
	removeLocks string
	// fallAsleep takes the lock for which the trigger looks, until wakeUp or the end of the
	// connection. Several relays share it.
	fallAsleep, wakeUp string
	// countRows returns the rows that wait, the age of the oldest in s, and the failed rows.
	countRows string
	// readSchema returns the version of the schema and the identity of the outbox.
	readSchema string
	// mayRelay do nothing. They fail unless the user may do what a relay does.
	mayRelay []string
	// relaying are the options of a relay's transactions.
	relaying *sql.TxOptions
	// poll is the default of Relay.Poll.
	poll time.Duration

	// files are the migrations in the folder dir, one file a version, in order.
	files embed.FS
	dir   string
	// tableExists returns whether there is a schema.
	tableExists string
	// migrating calls upgrade. A second call waits for the first.
	migrating func(ctx context.Context, db *sql.DB, upgrade func(migration) error) error
}

// migration executes statements and reads rows.
type migration interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (d Dialect) statements() statements {
	if d == MariaDB {
		return mariadb()
	}
	return postgres()
}
