package intake

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
)

// HeaderPriority is the priority of the message that is delivered, 0 to 255: an integer, or text of
// digits. The intake's queue doesn't order by it.
const HeaderPriority = task.ReservedHeaderPrefix + "priority"

// usualPriority is the level of a message without a priority in a quorum queue of RabbitMQ 4.3.
const usualPriority = 4

// ordersByPriority reports whether a version of RabbitMQ orders quorum queues by priority. 4.0 to 4.2
// know two levels, above 4 and the rest. 4.3 has 32, and delivers the highest first. No
// argument of the queue and no policy turns that off.
func ordersByPriority(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 4
}

// checkOrder refuses a message whose priority would change the order of the messages of its ID. A
// message that comes back from a consumer's queue is later than others of its ID in any case.
// An explicit 0 looks like none.
func checkOrder(m amqpmsg.Message) error {
	_, dead := m.Headers["x-death"]
	_, delivered := m.Headers[task.HeaderScheduled]
	if p := m.Properties.Priority; p == 0 || p == usualPriority || dead || delivered {
		return nil
	}
	return fmt.Errorf("property priority: must be left out, because RabbitMQ would deliver messages of this ID in "+
		"another order: use the header %s, or set intake.priorities", HeaderPriority)
}

// setPriority gives a message the priority of its header.
func setPriority(m *amqpmsg.Message) error {
	value, there := m.Headers[HeaderPriority]
	if !there {
		return nil
	}
	n, ok := integer(value)
	if digits, isText := text(value); isText {
		parsed, err := strconv.ParseUint(digits, 10, 8)
		n, ok = int64(parsed), err == nil //nolint:gosec // it has 8 bits
	}
	if !ok || n < 0 || n > math.MaxUint8 {
		return fmt.Errorf("header %s: must be 0 to %d", HeaderPriority, math.MaxUint8)
	}
	m.Properties.Priority = uint8(n)
	return nil
}
