// Package consumer passes due tasks from a RabbitMQ queue to a handler. It decodes
// messages and remembers which deliveries are done. It retries failed tasks with a delay,
// and parks a task after the last attempt, so that it can be replayed.
//
// The result of a handler decides what happens to its task:
//
//	nil          acked and remembered: a redelivery is acked without the handler
//	an error     stored again under the same ID with the policy's delay, attempt + 1
//	Later(err,d) stored again with the delay d, and the attempt isn't counted
//	Park(err)    parked with the reason, as after the last attempt
//	Drop(err)    given up: acked, counted and remembered
//
// A task is stored before its delivery is acked, so a crash causes a repeat, never a
// loss. If the producer cancels, reschedules or replaces a task while a handler has it, a
// retry doesn't restore the old task. docs/guarantees.md lists the rare exceptions.
//
// While Redis is away, deliveries wait for it and occupy the places of handlers
// (Config.Concurrency). So the whole queue waits.
//
// Some errors of Redis concern one topic, shard or task only: a key of the wrong type, a
// missing right, an unknown topic. Then only this delivery waits. It occupies no place of
// a handler, but it counts for Config.Prefetch. The consumer asks Redis again, and after
// ten minutes it requeues the delivery, so the handler runs again.
//
// If `scanner topic rm` removed the topic, the failed delivery is logged, counted as
// topic_removed and acked; it isn't retried.
//
// If the topic of a delivery has no placement under this prefix in this Redis, the
// scanners use another Redis or prefix. The delivery waits in the same way, and its
// handler doesn't run.
//
// If topics share a queue, a Mux chooses the handler by the task's topic. JSON decodes
// payloads for a handler.
//
// A Consumer has one queue. For several queues run several Consumers in a group of
// golang.org/x/sync/errgroup: all stop together with its context. They may share
// Config.Redis and Config.Registerer.
//
//	group, ctx := errgroup.WithContext(ctx)
//	group.Go(func() error { return orders.Run(ctx) })
//	group.Go(func() error { return bills.Run(ctx) })
//	err := group.Wait()
//
// A program with a consume loop of its own can use Parse alone. See docs/guide.md for how
// to use this package in an application.
package consumer
