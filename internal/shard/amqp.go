package shard

import (
	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
)

// decodeAMQP unpacks the body of a record of format 2. The task's Payload may keep the
// message's properties in memory, and never the rest of the record.
func decodeAMQP(in *reader, t *task.Task) error {
	if err := in.cut(); err != nil {
		return err
	}
	m, err := amqpmsg.Decode([]byte(in.text[in.at:]))
	if err != nil {
		return err
	}
	t.ContentType, t.Payload = m.Properties.ContentType, m.Body
	t.AMQP = &task.AMQP{RoutingKey: m.RoutingKey, Properties: m.Properties, Headers: m.Headers}
	mark, _ := m.Headers[HeaderNext].(string)
	t.FirstDue = FirstDue(mark, t.Due)
	return nil
}
