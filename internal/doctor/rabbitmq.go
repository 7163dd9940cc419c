package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/problem"
)

// broker is a connection to a broker, and the URL it was made with.
type broker struct {
	conn *amqpconn.Conn
	out  *cork // of conn
	uri  amqp.URI
	// idle are open channels that nobody uses.
	idle chan *amqp.Channel
}

// brokers is the result of connecting to each URL in rabbitmq.urls.
type brokers struct {
	// first is the first broker that answers; nil if none does.
	first *broker
	// alarm is why the first broker accepts no messages; "" if it does.
	alarm string
	// refused is true if no broker answers, and a finding says why.
	refused bool
}

// cut closes the connection at once. All requests on it end then.
func (b brokers) cut() {
	if b.first != nil {
		b.first.conn.Cut()
	}
}

// close closes the connection, within closeLimit, or at once if ctx is over.
func (b brokers) close(ctx context.Context) {
	if b.first == nil {
		return
	}
	defer context.AfterFunc(ctx, b.cut)()
	b.first.conn.Close(closeLimit) // nothing is in flight
}

// explains reports whether a finding about the brokers already explains a scanner's
// problem.
func (b brokers) explains(kind problem.Kind) bool {
	if b.first == nil {
		return b.refused && kind == problem.RabbitMQUnreachable
	}
	return b.alarm != "" && kind == problem.RabbitMQBlocked
}

// examineRoutes checks the topics' exchanges, queues and bindings at a broker, and what
// removed topics left there.
func (p Target) examineRoutes(ctx context.Context, r *report, found answers) {
	b, docs, running, alarm := found.brokers.first, found.docs.good, len(found.fleet.live()) > 0, found.brokers.alarm
	examineConflicts(r, docs)
	if alarm == "" {
		p.examineMessageSize(ctx, r, b, docs)
	}
	past := make(chan earlier, 1)
	go func() { past <- p.readEarlier(ctx, found.stored) }()
	var bound sync.Map
	r.eachTopic(ctx, "exchanges and queues", slices.Sorted(maps.Keys(docs)), func(r *report, name string) {
		if p.examineTopic(ctx, r, b, name, docs[name], running) {
			bound.Store(name, true)
			b.examineBinding(r, name, docs[name], found.fleet.unrouted[name])
		}
		b.examineDeadLetters(ctx, r, name, docs[name], running)
		b.examineIntake(ctx, r, name, docs[name], running, alarm)
	})
	r.ask(oldOnes)
	p.examineEarlier(ctx, r, b, found.docs, <-past, func(topic string) bool {
		_, is := bound.Load(topic)
		return is
	})
}

// reachRabbitMQ tries every URL at the same time. The caller must close the result.
func (p Target) reachRabbitMQ(ctx context.Context, r *report) (found brokers) {
	secure, err := connect.ReadTLS(p.Settings.RabbitMQ.TLS)
	if err != nil {
		r.fail("rabbitmq.connection", "set rabbitmq.tls to files that exist", "rabbitmq.tls: %v", err)
		return brokers{refused: true}
	}
	urls := p.Settings.RabbitMQ.URLs
	all, reports := make([]brokers, len(urls)), make([]*report, len(urls))
	var group sync.WaitGroup
	for i, raw := range urls {
		reports[i] = &report{}
		group.Go(func() { all[i] = reachBroker(ctx, reports[i], i, raw, secure) })
	}
	group.Wait()
	for i, b := range all {
		r.addReport(reports[i])
		switch {
		case found.first == nil && b.first != nil:
			found = b
		case b.first != nil:
			b.close(ctx) // it has answered, and nothing else was asked
		}
	}
	found.refused = found.first == nil && r.failed("rabbitmq.connection")
	return found
}

// reachBroker tries the URL with an index in rabbitmq.urls.
func reachBroker(ctx context.Context, r *report, index int, raw string, secure *tls.Config) (found brokers) {
	const check = "rabbitmq.connection"
	b, err := dial(ctx, raw, secure)
	addr := net.JoinHostPort(b.uri.Host, strconv.Itoa(b.uri.Port))
	if why := unanswered(ctx, err); why != "" {
		r.unchecked(check, "%s (%s)", why, addr)
		return found
	}
	if err != nil {
		r.fail(check, fixBroker(b.uri, index, err), "%s: %v", addr, err)
		return found
	}
	found = brokers{first: &b}
	found.alarm, err = alarmed(ctx, raw, secure)
	switch {
	case found.alarm != "":
		r.fail(check, "free disk space or memory on the broker's machine; list its alarms with: "+
			"rabbitmq-diagnostics alarms",
			"%s answers, and takes no messages: RabbitMQ blocks publishers: %s", addr, found.alarm)
		return found
	case err != nil:
		r.unchecked("rabbitmq.alarm", "%s (%s)", cmp.Or(unanswered(ctx, err), err.Error()), addr)
	}
	r.ok(check, "%s answers user %s in vhost %s, %s", addr, b.uri.Username, b.uri.Vhost,
		choose(b.uri.Scheme == "amqps", "with TLS", "without TLS"))
	return found
}

func choose(yes bool, then, otherwise string) string {
	if yes {
		return then
	}
	return otherwise
}

// dial opens a connection. Errors never contain the URL, because it has a password. The end
// of ctx ends a dial that isn't ready, and nothing later.
func dial(ctx context.Context, raw string, secure *tls.Config) (b broker, err error) {
	b.idle = make(chan *amqp.Channel, askedAtOnce)
	if b.uri, err = amqp.ParseURI(raw); err != nil {
		return broker{}, errors.New("rabbitmq.urls: not amqp://user:password@host:5672/vhost")
	}
	server, err := amqpconn.Parse(raw, secure)
	if err != nil {
		return b, fmt.Errorf("rabbitmq.urls: %w", err)
	}
	b.conn, err = server.Connect(ctx, amqpconn.Config{Timeout: askLimit, Transport: func(stream, _ net.Conn) net.Conn {
		b.out = &cork{Conn: stream}
		return b.out
	}})
	return b, err
}

// alarmed returns why a broker accepts no messages; "" if the broker accepts them. An error
// means that alarmed can't find out. A broker with an alarm blocks a connection at its
// first message: it sends a notice and reads nothing more. So alarmed sends a message
// that goes to no queue, and then another request. Either the notice arrives, or the
// answer to the request. alarmed makes its own connection, because a blocked one can't
// even be closed.
func alarmed(ctx context.Context, raw string, secure *tls.Config) (reason string, err error) {
	b, err := dial(ctx, raw, secure)
	if err != nil {
		return "", err
	}
	defer b.conn.Cut()
	defer context.AfterFunc(ctx, b.conn.Cut)()
	blocked := b.conn.AMQP.NotifyBlocked(make(chan amqp.Blocking, 1))
	ch, err := b.conn.AMQP.Channel()
	if err != nil {
		return "", err
	}
	if err := ch.PublishWithContext(ctx, "", "doctor-"+rand.Text(), false, false, amqp.Publishing{}); err != nil {
		return "", err
	}
	answered := make(chan struct{})
	go func() { // another channel: the broker closes this one if its user may not publish
		_, _ = b.conn.AMQP.Channel() // an error is an answer too
		close(answered)
	}()
	select {
	case b := <-blocked:
		return b.Reason, nil
	case <-answered:
		return "", ctx.Err()
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// fixBroker returns the command that fixes a failed connection.
func fixBroker(uri amqp.URI, index int, err error) string {
	var refusal *amqp.Error
	errors.As(err, &refusal)
	key := fmt.Sprintf("rabbitmq.urls[%d]", index)
	switch {
	case uri.Host == "":
		return "write " + key + " as a URL, reserved characters percent-encoded"
	case serverWithoutTLS(err):
		return "the broker speaks no TLS at that port: write amqp:// in " + key + ", or the port that speaks it"
	case tlsFailed(err):
		return fmt.Sprintf("set rabbitmq.tls; see the broker's certificate with: openssl s_client -connect %s:%d", uri.Host,
			uri.Port)
	case refusal != nil && strings.Contains(refusal.Reason, "vhost") && strings.Contains(refusal.Reason, "not found"):
		return fmt.Sprintf("rabbitmqctl add_vhost %s; then rabbitmqctl set_permissions -p %s %s "+leastRights, uri.Vhost,
			uri.Vhost, uri.Username)
	case refusal != nil && (errors.Is(refusal, amqp.ErrVhost) || strings.Contains(refusal.Reason, "vhost")):
		return fmt.Sprintf("rabbitmqctl set_permissions -p %s %s "+leastRights, uri.Vhost, uri.Username)
	case refusal != nil && refusal.Code == amqp.AccessRefused:
		return fmt.Sprintf("put the password into %s, or set it: rabbitmqctl change_password %s PASSWORD", key, uri.Username)
	default:
		return "start the broker, or set " + key + "; see it with: rabbitmq-diagnostics listeners"
	}
}

// ask runs a request on a channel that no other request uses. A refusal closes the channel, and
// after an answer the next request may have it. The end of the context closes the connection,
// and so ends the request.
func (b *broker) ask(ctx context.Context, question func(*amqp.Channel) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ch, err := b.channel()
	if err == nil {
		if err = question(ch); err == nil {
			b.release(ch)
		} else {
			defer ch.Close()
		}
	}
	if why := ctx.Err(); err != nil && why != nil {
		return why
	}
	return err
}

// channel returns an idle channel, or a new one.
func (b *broker) channel() (*amqp.Channel, error) {
	select {
	case ch := <-b.idle:
		return ch, nil
	default:
		return b.conn.AMQP.Channel()
	}
}

// release makes a channel idle, or closes it if there are enough.
func (b *broker) release(ch *amqp.Channel) {
	select {
	case b.idle <- ch:
	default:
		_ = ch.Close() // nothing is in flight
	}
}

// refuse reports why a question has no answer: the user may not ask, or no time was left. It
// is a failure only if the broker says something else.
func (b *broker) refuse(ctx context.Context, r *report, check, what string, err error) {
	if amqpconn.Refused(err, amqp.AccessRefused) {
		r.unchecked(check, "user %s may not ask for %s: %v", b.uri.Username, what, err)
		return
	}
	r.failErr(ctx, err, check, "see the broker's log", "%s: %v", what, err)
}

// queue returns the state of a queue, if it exists.
func (b *broker) queue(ctx context.Context, name string) (found amqp.Queue, err error) {
	err = b.ask(ctx, func(ch *amqp.Channel) (err error) {
		found, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	return found, err
}

// examineTopic checks a topic's exchange and queue. It returns true if both exist and the
// exchange is as scanners declare it, so that their binding can be checked.
func (p Target) examineTopic(ctx context.Context, r *report, b *broker, name string, t config.Topic,
	running bool) bool {
	if t.Exchange == "" { // AMQP's default exchange binds every queue by its name
		b.examineQueue(ctx, r, name, t, t.RoutingKey, running)
		return false
	}
	err := b.ask(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(t.Exchange, amqp.ExchangeDirect, true, false, false, false, nil)
	})
	check, fits := "topic "+name+" exchange", true
	switch {
	case err == nil && t.Declare != nil:
		fits = p.examineDeclared(ctx, r, b, name, t)
	case err == nil:
		r.ok(check, "exchange %s is there", t.Exchange)
	case t.Declare != nil && !running && notFound(err):
		r.info(check, "exchange %s isn't there; the first scanner will make it", t.Exchange)
		return false
	case notFound(err):
		r.fail(check, b.declare("exchange", "name="+t.Exchange+" type="+kind(t)), "%v", err)
		return false
	default:
		b.refuse(ctx, r, check, "exchange "+t.Exchange, err)
		return false
	}
	return (t.Declare == nil || b.examineQueue(ctx, r, name, t, t.Declare.Queue, running)) && fits
}

// examineQueue checks a topic's queue and returns whether it exists.
func (b *broker) examineQueue(ctx context.Context, r *report, name string, t config.Topic, queue string,
	running bool) bool {
	check := "topic " + name + " queue"
	found, err := b.queue(ctx, queue)
	switch {
	case err == nil && found.Consumers == 0:
		r.warn(check, "start the application that consumes from "+queue,
			"queue %s is there, holds %d messages, and nobody consumes from it", queue, found.Messages)
	case err == nil:
		r.ok(check, "queue %s is there, with %d messages and %d consumers", queue, found.Messages, found.Consumers)
	case notFound(err) && t.Declare != nil && !running:
		r.info(check, "queue %s isn't there; the first scanner will make it", queue)
	case notFound(err) && t.Declare != nil:
		properties := fmt.Sprintf(`name=%s arguments='%s'`, queue, queueArguments(*t.Declare))
		r.fail(check, fmt.Sprintf("%s; then %s; or restart a scanner, which makes both",
			b.declare("queue", properties), b.bind(t, queue)), "%v", err)
	case notFound(err):
		r.fail(check, b.declare("queue", "name="+queue), "%v", err)
	default:
		b.refuse(ctx, r, check, "queue "+queue, err)
	}
	return err == nil
}

// examineBinding reports whether messages failed for lack of a binding. It can't check
// more: AMQP has no request for bindings, and consumers would receive a test message.
func (b *broker) examineBinding(r *report, name string, t config.Topic, returned bool) {
	check := "topic " + name + " binding"
	queue := "QUEUE"
	if t.Declare != nil {
		queue = t.Declare.Queue
	}
	switch {
	case returned:
		r.fail(check, b.bind(t, queue), "RabbitMQ returned messages: no queue is bound to exchange %s for key %s", t.Exchange,
			t.RoutingKey)
	case t.Declare != nil:
		r.info(check, "AMQP can't tell whether queue %s is still bound; a scanner binds it when it connects", queue)
	default:
		r.info(check, "AMQP can't tell whether a queue is bound to exchange %s for key %s; if none is, "+
			"duefleet_returned_total rises", t.Exchange, t.RoutingKey)
	}
}

func notFound(err error) bool { return amqpconn.Refused(err, amqp.NotFound) }

// kind returns the exchange's type; direct if the scanner doesn't declare it.
func kind(t config.Topic) string {
	if t.Declare != nil {
		return t.Declare.Type
	}
	return amqp.ExchangeDirect
}

func (b *broker) declare(what, properties string) string {
	return fmt.Sprintf("rabbitmqadmin -V %s declare %s %s durable=true", b.uri.Vhost, what, properties)
}

func (b *broker) bind(t config.Topic, queue string) string {
	return fmt.Sprintf("rabbitmqadmin -V %s declare binding source=%s destination=%s routing_key=%s", b.uri.Vhost,
		t.Exchange, queue, t.RoutingKey)
}
