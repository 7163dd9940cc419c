// Package consumer hands due tasks from a RabbitMQ queue to a handler, and does
// around it what is easily done wrong by hand: decoding, remembering what was
// done, retrying with a delay, giving up in a way that can be undone.
//
// What became of a task is decided by what its handler returns:
//
//	nil          acked and remembered: a redelivery is acked without the handler
//	an error     stored again under the same ID, by the policy, attempt + 1
//	Park(err)    parked with the reason, as after the last attempt
//	Drop(err)    acked and counted
//
// The task is stored first and acked last, so that a crash repeats and never
// loses. A task that the producer cancelled, moved or replaced while a handler
// had it is not brought back by its retry. docs/guarantees.md has the windows.
//
// While Redis is away, handlers that need it keep their places, and the queue waits.
// An error that is one topic's, one shard's or one task's own (a key of the wrong type,
// a missing right, an unknown topic) holds up that delivery alone: it waits without a
// handler's place, and the consumer asks Redis again. After ten minutes it requeues the
// delivery, so the handler runs again. Deliveries that wait count for Config.Prefetch.
// Where `scanner topic rm` removed the topic, the failed delivery is logged, counted as
// topic_removed and acked: nothing follows it.
//
// A delivery whose topic has no placement in this Redis under this prefix comes from
// scanners that have another one: it waits in the same way, and its handler doesn't run.
//
// A Mux chooses the handler by the task's topic, where the topics share a queue. JSON
// decodes payloads for a handler.
//
// A Consumer has one queue. For several queues run several Consumers, which may share
// Config.Redis and Config.Registerer, in a group of golang.org/x/sync/errgroup: all stop
// together with its context.
//
//	group, ctx := errgroup.WithContext(ctx)
//	group.Go(func() error { return orders.Run(ctx) })
//	group.Go(func() error { return bills.Run(ctx) })
//	err := group.Wait()
//
// Those with a loop of their own use Parse alone. docs/guide.md is for developers of
// applications.
package consumer
