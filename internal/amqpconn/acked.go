package amqpconn

import "time"

// A channel of RabbitMQ sends a quorum queue ackedAtOnce acks. It keeps the others until the queue
// has answered, and drops them if it is closed meanwhile (rabbit_fifo_client.erl, SOFT_LIMIT). A
// queue is given settleTime to answer.
const (
	ackedAtOnce = 32
	settleTime  = 500 * time.Millisecond
)

// Acked remembers when the last acks were sent on a channel.
type Acked struct {
	at []time.Time // at most ackedAtOnce
}

// Sent notes that an ack was sent now. An ack of several messages counts once.
func (a *Acked) Sent() {
	if a.at = append(a.at, time.Now()); len(a.at) > ackedAtOnce {
		a.at = a.at[1:]
	}
}

// Rest returns how long to wait before the channel is closed, so that no ack is lost.
func (a *Acked) Rest() time.Duration {
	if len(a.at) < ackedAtOnce || time.Since(a.at[0]) > settleTime {
		return 0
	}
	return max(0, settleTime-time.Since(a.at[ackedAtOnce-1]))
}
