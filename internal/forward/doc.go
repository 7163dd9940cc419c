// Package forward takes due tasks to a RabbitMQ exchange and says of each what
// became of it: publish, confirm, return, reconnect.
//
// A Connection keeps one AMQP connection up. Each topic has a Publisher with a
// channel of its own on it, so that one topic's missing exchange cannot slow
// another. Every Message handed to Publish gets exactly one Result, whatever
// the broker, the network or a new Route do meanwhile.
//
// Nothing here waits for the broker without a limit: writes have a deadline,
// requests have a timeout, and a confirm that is overdue ends its channel.
package forward
