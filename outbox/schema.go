package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/duefleet/duefleet/outbox/internal/dberr"
)

// Version is the schema version that this library writes and reads.
const Version = 2

var (
	// ErrNoTable: the database has no outbox. On PostgreSQL, the connection's search_path may
	// not lead to it.
	ErrNoTable = dberr.ErrNoTable
	// ErrOlderSchema: the tables are older than this library.
	ErrOlderSchema = dberr.ErrOlderSchema
	// ErrNewerSchema: the tables are newer than this library.
	ErrNewerSchema = errors.New("the schema of the outbox is newer than this library; upgrade the program")
	// ErrRights: the database user lacks a right. docs/outbox.md lists the rights.
	ErrRights = dberr.ErrRights
)

// Migrate creates the tables, or upgrades them to Version. It does nothing if they have that
// version. Several programs may call it at once. The user needs the right to create tables.
// The SQL is in outbox/postgres, for tools of your own.
func Migrate(ctx context.Context, db *sql.DB) error { return PostgreSQL.Migrate(ctx, db) }

// Migrate is like the function Migrate, for a kind of database. The SQL for MariaDB is in
// outbox/mariadb.
func (d Dialect) Migrate(ctx context.Context, db *sql.DB) error {
	s := d.statements()
	return wrap("migrate the outbox", s.migrating(ctx, db, func(m migration) error {
		var exists bool
		if err := m.QueryRowContext(ctx, s.tableExists).Scan(&exists); err != nil {
			return err
		}
		version := 0
		if exists {
			var err error
			if version, _, err = s.schemaOf(ctx, m); err != nil {
				return err
			}
		}
		files, err := fs.Glob(s.files, s.dir+"/*.sql")
		if err != nil {
			return err
		}
		if version > len(files) {
			return newer(version)
		}
		for _, file := range files[version:] {
			statements, err := fs.ReadFile(s.files, file)
			if err != nil {
				return err
			}
			if _, err := m.ExecContext(ctx, string(statements)); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		return nil
	}))
}

// Check returns an error unless the database has the schema of this library: ErrNoTable,
// ErrOlderSchema, ErrNewerSchema or ErrRights. The last also means that the user may not read
// the version. Call it when the program starts.
func Check(ctx context.Context, db *sql.DB) error { return PostgreSQL.Check(ctx, db) }

// Check is like the function Check, for a kind of database.
func (d Dialect) Check(ctx context.Context, db *sql.DB) error {
	_, err := d.statements().checked(ctx, db)
	return wrap("check the outbox", err)
}

// checked returns the identity of the outbox if the schema has the version of this library.
func (s statements) checked(ctx context.Context, db *sql.DB) (outbox string, err error) {
	version, outbox, err := s.schemaOf(ctx, db)
	switch {
	case err != nil:
		return "", err
	case version < Version:
		return "", fmt.Errorf("%w: version %d, want %d", ErrOlderSchema, version, Version)
	case version > Version:
		return "", newer(version)
	}
	return outbox, nil
}

func newer(version int) error {
	return fmt.Errorf("%w: version %d, want %d", ErrNewerSchema, version, Version)
}

func (s statements) schemaOf(ctx context.Context, from interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (version int, outbox string, err error) {
	err = from.QueryRowContext(ctx, s.readSchema).Scan(&version, &outbox)
	return version, outbox, dberr.Explained(err)
}

func wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, dberr.Explained(err))
}

// inTx commits what change did, unless it fails.
func inTx(ctx context.Context, db interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}, opts *sql.TxOptions, change func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	if err := change(tx); err != nil {
		return err
	}
	return tx.Commit()
}
