// Package clients holds programs that publish to and consume from RabbitMQ with the
// libraries of other languages. They were written for the delayed message exchange, as its
// users write them; only the declaration of the exchange is duefleet's.
//
// `make clients` runs each of them against a fleet.
package clients
