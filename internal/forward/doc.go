// Package forward publishes due tasks to a RabbitMQ exchange and reports the outcome of
// each.
//
// A Connection keeps one AMQP connection up. Each topic has a Publisher with its own
// channel, so that one topic's missing exchange cannot slow another. Every Message passed
// to Publish gets exactly one Result, whatever the broker, the network or a new Route
// does meanwhile.
//
// Nothing here waits for the broker without a limit. Writes have a deadline and requests
// have a timeout. A message whose confirm is overdue gets the outcome Overdue.
package forward
