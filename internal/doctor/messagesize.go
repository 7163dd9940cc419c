package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/config"
)

// examineMessageSize compares RabbitMQ's max_message_size with the largest payload. AMQP doesn't
// tell it, so doctor tries a message that is one byte larger.
func (p Target) examineMessageSize(ctx context.Context, r *report, b *broker, docs map[string]config.Topic) {
	const check = "rabbitmq.message_size"
	payload := p.Settings.MaxPayload
	err := b.tryPublish(ctx, "", make([]byte, payload+1))
	limit, limited := amqpconn.MessageLimit(err)
	switch {
	case limited && limit < payload:
		r.warn(check, fmt.Sprintf("set max_message_size of RabbitMQ to %d or more, or max_payload to %d", payload, limit),
			"RabbitMQ takes messages of at most %d bytes and max_payload is %d, so larger tasks are parked", limit, payload)
	case limited:
		r.ok(check, "RabbitMQ takes messages of at most %d bytes, as max_payload says", limit)
	case err != nil && !amqpconn.Refused(err, amqp.AccessRefused): // that isn't for the size
		b.refuse(ctx, r, check, "a message of max_payload", err)
	default:
		p.examineLargeBodies(r, b, check, docs)
	}
}

// examineLargeBodies says what scanners do with messages above max_payload, which RabbitMQ takes. A
// queue that scanners declare has dead letters, so they keep no large body of it.
func (p Target) examineLargeBodies(r *report, b *broker, check string, docs map[string]config.Topic) {
	var intakes, byHand []string
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		if t := docs[name]; t.TakesIn() {
			intakes = append(intakes, name)
			if t.Declare == nil {
				byHand = append(byHand, name)
			}
		}
	}
	payload, room, most := p.Settings.MaxPayload, p.Settings.InFlightBytes, b.largestByDefault()
	switch {
	case len(intakes) == 0:
		r.ok(check, "RabbitMQ takes messages of max_payload, which is %d bytes", payload)
	case len(byHand) == 0:
		r.info(check, "RabbitMQ takes messages above max_payload, which is %d bytes: scanners refuse them, and don't keep "+
			"bodies that are larger than their share of in_flight_bytes", payload)
	case most > room:
		r.warn(check, fmt.Sprintf("set in_flight_bytes to %d or more, or max_message_size of RabbitMQ to %d, or let "+
			"scanners declare the queues", most, payload),
			"RabbitMQ may take a message of %d bytes, and in_flight_bytes is %d: the intakes of %s have queues that were "+
				"made by hand, so a scanner has the whole body in memory before it can refuse it", most, room, named(byHand))
	default:
		r.info(check, "RabbitMQ takes messages above max_payload, which is %d bytes: the intakes of %s have queues that "+
			"were made by hand. A scanner has a body in memory before it can refuse it, so set max_message_size of RabbitMQ "+
			"to the largest body that applications publish", payload, named(byHand))
	}
}

// largestByDefault returns the max_message_size of this version of RabbitMQ, in bytes, where it
// isn't set. See https://www.rabbitmq.com/docs/configure.
func (b *broker) largestByDefault() int {
	version, _ := b.conn.AMQP.Properties["version"].(string)
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n >= 4 {
		return 16 << 20
	}
	return 128 << 20
}
