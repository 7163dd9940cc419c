package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/duefleet/duefleet/internal/ratelog"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/outbox/internal/dberr"
	"github.com/duefleet/duefleet/producer"
)

const (
	// redisLimit is how long the relay waits for Redis with one batch.
	redisLimit = 10 * time.Second
	// batchLimit limits the transaction of a batch.
	batchLimit = 30 * time.Second
	// lateCall is how long Redis may still execute a call whose answer was lost
	// (task.ErrUncertain), with a reserve.
	lateCall = 4 * time.Second
	// topicPause is how long rows of a topic wait that no scanner has served.
	topicPause = time.Second
)

// Listener tells a relay at once that there are rows. Package pgxlisten has one.
type Listener interface {
	// Listen calls wake when it begins to listen on the channel, and after each
	// notification. It returns an error if the connection breaks or ctx ends.
	Listen(ctx context.Context, channel string, wake func()) error
}

// Relay brings committed rows to Redis, and removes them when Redis has them. Several relays
// may work on one table. Each row is stored at least once. If a relay or its connection to the
// database ends between the two, a relay stores the row again, with the same due time.
type Relay struct {
	// Dialect is the kind of database. Defaults to PostgreSQL.
	Dialect Dialect
	// DB is the database. The relay uses one connection, for as long as it runs. Required.
	DB *sql.DB
	// Client stores the tasks. Its MaxPayload must not be smaller than a writer's. Required.
	Client *producer.Client
	// Listener wakes a relay that sleeps after each commit. MariaDB has no notifications.
	// Defaults to nil: the relay only polls.
	Listener Listener
	// Poll is the longest time between two looks for rows unless the Listener wakes the
	// relay. Defaults to 1 s, and to 50 ms for MariaDB.
	Poll time.Duration
	// Batch is the largest number of rows in one transaction. Defaults to 500.
	Batch int
	// Registerer gets the relay's metrics while Run runs. Each scrape counts the rows, on
	// a second connection of DB. Defaults to nil: no metrics.
	Registerer prometheus.Registerer
	// Log is the relay's log. Defaults to slog.Default().
	Log *slog.Logger
}

// Run relays until ctx ends, and returns nil then. It finishes a batch that it has begun,
// which takes half a minute at most if servers hang. It returns an error at once if a field
// is missing. It does so, too, if the table or a right is missing, or the schema is another
// one. It waits for a database or a Redis that it can't reach.
func (r Relay) Run(ctx context.Context) error {
	if r.DB == nil || r.Client == nil {
		return errors.New("outbox: Relay.DB and Relay.Client must be given")
	}
	if r.Poll < 0 || r.Batch < 0 {
		return fmt.Errorf("outbox: Relay.Poll and Relay.Batch must not be negative; got %s and %d", r.Poll, r.Batch)
	}
	if r.Dialect != PostgreSQL && r.Listener != nil {
		return fmt.Errorf("outbox: Relay.Listener must be nil: %s has no notifications", r.Dialect)
	}
	statements := r.Dialect.statements()
	r.Poll, r.Batch, r.Log = cmp.Or(r.Poll, statements.poll), cmp.Or(r.Batch, 500), cmp.Or(r.Log, slog.Default())
	m, err := newMetrics(r.Registerer, r.DB, statements.countRows)
	if err != nil {
		return fmt.Errorf("outbox relay: register its metrics: %w", err)
	}
	defer m.unregister(r.Registerer)
	work := &relay{
		Relay: r, metrics: m, session: session{statements: statements, db: r.DB},
		wake: make(chan struct{}, 1), waiting: map[string]time.Time{},
		unknown: ratelog.New(r.Log, slog.LevelWarn, "rows of the outbox wait for their topic"),
		aside:   ratelog.New(r.Log, slog.LevelError, "a row of the outbox breaks a rule and was set aside"),
	}
	if err := work.start(ctx); err != nil {
		return fmt.Errorf("outbox relay: %w", err)
	}
	var listening sync.WaitGroup
	if r.Listener != nil {
		listening.Go(func() { work.listen(ctx) })
	}
	work.run(ctx)
	listening.Wait()
	return nil
}

// relay is a Relay at work.
type relay struct {
	Relay
	metrics   *metrics
	session   session
	outbox    string // the identity of the table, for HeaderRow
	wake      chan struct{}
	listening atomic.Bool          // the Listener gets notifications
	waiting   map[string]time.Time // topics that no scanner has served, until when they wait
	unknown   *ratelog.Logger
	aside     *ratelog.Logger
}

// start checks schema and rights. It waits while the database can't be reached.
func (r *relay) start(ctx context.Context) error {
	t := r.trouble("the outbox relay can't read its database")
	for ctx.Err() == nil {
		err := r.check(ctx)
		if err == nil || final(err) {
			t.over(ctx)
			return err
		}
		t.wait(ctx, err)
	}
	return nil
}

func (r *relay) check(ctx context.Context) (err error) {
	if r.outbox, err = r.session.statements.checked(ctx, r.DB); err != nil {
		return err
	}
	for _, statement := range r.session.statements.mayRelay {
		if _, err := r.DB.ExecContext(ctx, statement); err != nil {
			return dberr.Explained(err)
		}
	}
	return nil
}

// final reports whether only a change of the database or of the program helps.
func final(err error) bool {
	return errors.Is(err, ErrNoTable) || errors.Is(err, ErrOlderSchema) || errors.Is(err, ErrNewerSchema) ||
		errors.Is(err, ErrRights)
}

// run does batch after batch. When a look finds nothing, it waits for the next look or for a
// wake-up; see session. After an error it pauses with jitter.
func (r *relay) run(ctx context.Context) {
	t := r.trouble("the outbox relay can't go on, rows wait in the table")
	defer r.session.end()
	for ctx.Err() == nil {
		err := r.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.session.end()
			t.wait(ctx, err)
			continue
		}
		t.over(ctx)
	}
}

// look does one batch. If there were no rows, it waits for a reason to look again.
func (r *relay) look(ctx context.Context) error {
	if err := r.session.removeLocks(ctx); err != nil {
		return err
	}
	n, err := r.batch(ctx)
	if err != nil {
		return err
	}
	if n > 0 {
		return r.session.wakeUp(ctx)
	}
	gap, err := r.session.next(ctx, r.listening.Load(), r.Poll)
	if err != nil {
		return err
	}
	timer := time.NewTimer(gap)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-r.wake:
		return r.session.wakeUp(ctx)
	}
	return nil
}

// listen keeps the Listener running. The poll covers the time without it.
func (r *relay) listen(ctx context.Context) {
	t := r.trouble("the outbox relay gets no notifications and polls")
	for ctx.Err() == nil {
		err := r.Listener.Listen(ctx, channel, func() {
			t.over(ctx)
			r.listening.Store(true)
			select {
			case r.wake <- struct{}{}:
			default: // it is awake already
			}
		})
		r.listening.Store(false)
		if ctx.Err() == nil {
			t.wait(ctx, err)
		}
	}
}

// trouble logs an error once while it lasts, and once when it is over.
type trouble struct {
	log     *slog.Logger
	message string
	backoff retry.Backoff
	lasts   bool
}

func (r *relay) trouble(message string) *trouble { return &trouble{log: r.Log, message: message} }

func (t *trouble) wait(ctx context.Context, err error) {
	if !t.lasts {
		t.log.WarnContext(ctx, t.message, "error", err) //nolint:sloglint // a constant of the caller
	}
	t.lasts = true
	t.backoff.Wait(ctx)
}

func (t *trouble) over(ctx context.Context) {
	if t.lasts {
		t.log.InfoContext(ctx, "over: "+t.message) //nolint:sloglint // a constant of the caller
	}
	t.lasts = false
	t.backoff.Reset()
}
