// Package pgerr adds to errors of PostgreSQL what to do about them.
package pgerr

import (
	"errors"
	"fmt"
)

// These are errors of package outbox, which describes them.
var (
	// ErrNoTable is outbox.ErrNoTable.
	ErrNoTable = errors.New("the database has no tables of the outbox on its search_path; run outbox.Migrate")
	// ErrOlderSchema is outbox.ErrOlderSchema.
	ErrOlderSchema = errors.New("the schema of the outbox is older than this library; run outbox.Migrate")
	// ErrRights is outbox.ErrRights.
	ErrRights = errors.New("the database user lacks a right on a table of the outbox; see the rights in docs/outbox.md")
)

// The codes of PostgreSQL's errors (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	undefinedTable    = "42P01"
	undefinedColumn   = "42703"
	insufficientRight = "42501"
)

// Explained adds what to do to an error of the database. Drivers of PostgreSQL have the
// method SQLState on their errors.
func Explained(err error) error {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return err
	}
	switch coded.SQLState() {
	case undefinedTable:
		return fmt.Errorf("%w: %w", ErrNoTable, err)
	case undefinedColumn:
		return fmt.Errorf("%w: %w", ErrOlderSchema, err)
	case insufficientRight:
		return fmt.Errorf("%w: %w", ErrRights, err)
	}
	return err
}
