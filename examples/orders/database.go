package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

const schema = `CREATE TABLE IF NOT EXISTS orders (
	id    text PRIMARY KEY,
	mail  text NOT NULL,
	state text NOT NULL DEFAULT 'unpaid' CHECK (state IN ('unpaid', 'paid', 'cancelled'))
)`

const paid = "paid" // like "cancelled", a final state: the order keeps it

var errNoOrder = errors.New("no such order")

type order struct {
	ID    string `json:"id"`
	Mail  string `json:"mail"`
	State string `json:"state"`
}

// orders are the orders in the database.
type orders struct{ db *sql.DB }

func openDatabase(ctx context.Context, url string) (*sql.DB, error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("make the table of orders: %w", err), db.Close())
	}
	return db, nil
}

func (s orders) find(ctx context.Context, id string) (order, error) {
	return read(ctx, s.db, id)
}

// insert stores the order, unless there is one of its ID, and returns what is stored.
func (s orders) insert(ctx context.Context, o order) (order, error) {
	return s.change(ctx, o.ID, `INSERT INTO orders (id, mail) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`, o.ID, o.Mail)
}

// pay pays the order if it is unpaid, and returns the order after that.
func (s orders) pay(ctx context.Context, id string) (order, error) {
	return s.change(ctx, id, `UPDATE orders SET state = 'paid' WHERE id = $1 AND state = 'unpaid'`, id)
}

// cancelUnpaid cancels the order if it is unpaid, and returns the order after that.
func (s orders) cancelUnpaid(ctx context.Context, id string) (order, error) {
	return s.change(ctx, id, `UPDATE orders SET state = 'cancelled' WHERE id = $1 AND state = 'unpaid'`, id)
}

// change executes a statement and reads the order in one transaction.
func (s orders) change(ctx context.Context, id, statement string, args ...any) (o order, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return o, err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
		return o, err
	}
	if o, err = read(ctx, tx, id); err != nil {
		return o, err
	}
	return o, tx.Commit()
}

func read(ctx context.Context, from interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, id string) (o order, err error) {
	err = from.QueryRowContext(ctx, `SELECT id, mail, state FROM orders WHERE id = $1`, id).Scan(&o.ID, &o.Mail, &o.State)
	if errors.Is(err, sql.ErrNoRows) {
		return o, errNoOrder
	}
	return o, err
}
