// Package scanner is one member of the fleet: workers that attend shards tick by
// tick, forward what is due, settle what RabbitMQ confirmed, and apply what the
// configuration says while they run.
//
// A task's way through it: worker.attend claims it, flight.forward publishes it,
// flight.resolved sorts the outcome, settler removes it from Redis or gives it
// back.
package scanner
