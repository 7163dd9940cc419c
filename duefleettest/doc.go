// Package duefleettest tests what an application does with tasks, on a clock that the test
// moves. A timeout of thirty minutes takes milliseconds, and needs no server:
//
//	fleet := duefleettest.New(t, duefleettest.Config{Topics: []string{"orders"}, Handler: app.Timeout})
//	app.Tasks = fleet.Client()
//	app.Order(ctx, "4711")
//	fleet.Advance(30 * time.Minute) // calls app.Timeout
//
// The fleet runs the real client of package producer, the real scripts and the real package
// consumer, with its retries, parking, steps and fences. Redis is
// github.com/alicebob/miniredis/v2 in the test's process. The fleet claims tasks as a
// scanner does, and hands a scanner's message to the consumer without RabbitMQ. So tasks do
// here what they do in production, within these limits:
//
//   - Each delivery is exactly on time. In production it is later, by a millisecond or by an
//     outage.
//   - Each delivery happens once. In production a crash repeats it: test that a handler can
//     be called twice.
//   - Deliveries come one after the other. In production Concurrency of them run at once.
//   - A task isn't stored while its handler runs, so Cancel in the handler returns
//     task.ErrNotFound. In production it may return nil, until the scanner removed the task.
//   - Settings of a topic, routing, intakes and dead letters need a broker, as do priority and
//     expiration.
//   - Redis never fails, and has one shard for each topic.
//
// The clock stands at the due time while a handler runs. A delay of In, NextWhen and a
// policy starts there, to the millisecond. Handlers that ask time.Now see the clock of the
// process instead. Run such a test in a bubble of testing/synctest, with Config.Synctest:
// there both clocks are one.
//
// A contract test plays the same scenarios on this fleet and on a real one, and both must
// show the same.
//
// Fleets share nothing, so tests may run in parallel. See docs/guide.md for how to test an
// application.
package duefleettest
