// Package clients holds programs that publish to and consume from RabbitMQ with the
// libraries and frameworks of other languages. The libraries' programs were written for the
// delayed message exchange, as its users write them; only the declaration of the exchange is
// duefleet's. The frameworks' programs delay messages as docs/from-the-delayed-exchange.md
// says.
//
// The folder openapi has clients of producer serve in TypeScript and Python, which are generated
// from the server's description.
//
// `make clients` runs each of them against a fleet.
package clients
