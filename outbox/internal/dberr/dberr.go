// Package dberr adds to errors of PostgreSQL and MariaDB what to do about them.
package dberr

import (
	"errors"
	"fmt"
	"reflect"
)

// These are errors of package outbox, which describes them.
var (
	// ErrNoTable is outbox.ErrNoTable.
	ErrNoTable = errors.New("the database has no tables of the outbox (on PostgreSQL: on its search_path); " +
		"run outbox.Migrate")
	// ErrOlderSchema is outbox.ErrOlderSchema.
	ErrOlderSchema = errors.New("the schema of the outbox is older than this library; run outbox.Migrate")
	// ErrRights is outbox.ErrRights.
	ErrRights = errors.New("the database user lacks a right on a table of the outbox; see the rights in docs/outbox.md")
)

// Explained adds what to do to an error of the database.
func Explained(err error) error {
	if cause := cause(err); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// cause returns the error of this package that an error of a database means, or nil.
func cause(err error) error {
	var coded interface{ SQLState() string } // drivers of PostgreSQL have it
	if errors.As(err, &coded) {
		// https://www.postgresql.org/docs/current/errcodes-appendix.html
		switch coded.SQLState() {
		case "42P01": // undefined_table
			return ErrNoTable
		case "42703": // undefined_column
			return ErrOlderSchema
		case "42501": // insufficient_privilege
			return ErrRights
		}
		return nil
	}
	// https://mariadb.com/kb/en/mariadb-error-code-reference/
	switch number(err) {
	case 1046, 1146: // ER_NO_DB_ERROR, ER_NO_SUCH_TABLE
		return ErrNoTable
	case 1054: // ER_BAD_FIELD_ERROR
		return ErrOlderSchema
	case 1044, 1142, 1143, 1370: // ER_DBACCESS_DENIED_ERROR, ER_TABLEACCESS_, ER_COLUMNACCESS_, ER_PROCACCESS_
		return ErrRights
	}
	return nil
}

// number returns the number of an error of MariaDB, or 0. The driver has it in the field
// Number, and has no method for it. The field is part of the driver's API. The text of the
// error isn't, and has changed: version 1.7 added the state.
func number(err error) uint64 {
	if err == nil {
		return 0
	}
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
		if field := v.FieldByName("Number"); field.IsValid() && field.Kind() == reflect.Uint16 {
			return field.Uint()
		}
	}
	switch wrapping := err.(type) { //nolint:errorlint // it takes the tree apart itself
	case interface{ Unwrap() error }:
		return number(wrapping.Unwrap())
	case interface{ Unwrap() []error }:
		for _, each := range wrapping.Unwrap() {
			if n := number(each); n != 0 {
				return n
			}
		}
	}
	return 0
}
