package shard

import (
	"maps"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
)

// decodeAMQP unpacks the body of a record of format 2. The task's Payload may keep the
// message's properties in memory, and never the rest of the record.
func decodeAMQP(in *reader, r *Record) error {
	if err := in.cut(); err != nil {
		return err
	}
	m, err := amqpmsg.Decode([]byte(in.text[in.at:]))
	if err != nil {
		return err
	}
	r.ContentType, r.Payload = m.Properties.ContentType, m.Body
	r.AMQP = &task.AMQP{RoutingKey: m.RoutingKey, Properties: m.Properties, Headers: m.Headers}
	mark, _ := m.Headers[HeaderNext].(string)
	r.next(mark)
	r.Series, _ = m.Headers[task.HeaderSeries].(string)
	delete(m.Headers, task.HeaderSeries)
	return nil
}

// encodeAMQP packs a task that came through an intake.
func encodeAMQP(t *task.Task) ([]byte, error) {
	headers := t.AMQP.Headers
	if t.Series != "" {
		headers = make(map[string]any, len(t.AMQP.Headers)+1)
		maps.Copy(headers, t.AMQP.Headers)
		headers[task.HeaderSeries] = t.Series
	}
	return amqpmsg.Encode(amqpmsg.Message{RoutingKey: t.AMQP.RoutingKey, Properties: t.AMQP.Properties, Headers: headers,
		Body: t.Payload})
}
