<?php
// What a program with Symfony's Messenger has in its configuration.

require '/usr/share/php/Symfony/Component/Messenger/autoload.php';
require '/usr/share/php/Symfony/Component/Messenger/Bridge/Amqp/autoload.php';

use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpStamp;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpTransport;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\Connection;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Middleware\MiddlewareInterface;
use Symfony\Component\Messenger\Middleware\StackInterface;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Stamp\ReceivedStamp;

final class Order
{
    public function __construct(public int $number, public int $sent, public int $delay)
    {
    }
}

/** Lets a message with a DelayStamp wait in duefleet, not in a queue of Symfony's. */
final class DelayInDuefleet implements MiddlewareInterface
{
    public function handle(Envelope $envelope, StackInterface $stack): Envelope
    {
        $delay = $envelope->last(DelayStamp::class);
        if ($delay && !$envelope->last(ReceivedStamp::class)) {
            $stamp = $envelope->last(AmqpStamp::class);
            $headers = ['x-delay' => $delay->getDelay()] + ($stamp?->getAttributes()['headers'] ?? []);
            $envelope = $envelope->withoutAll(DelayStamp::class)
                ->with(AmqpStamp::createWithAttributes(['headers' => $headers], $stamp));
        }
        return $stack->next()->handle($envelope, $stack);
    }
}

/** Returns the transport with these options. */
function transport(array $options): AmqpTransport
{
    return new AmqpTransport(Connection::fromDsn(getenv('AMQP_URL'), $options));
}

/** Returns the transport of publishers. */
function delayed(): AmqpTransport
{
    return transport([
        'exchange' => ['name' => 'orders.delayed', 'type' => 'topic', 'default_publish_routing_key' => 'order.new'],
        'queues' => [],
        'confirm_timeout' => 5,
    ]);
}

/** Returns the transport of workers. */
function due(): AmqpTransport
{
    return transport([
        'exchange' => ['name' => 'orders', 'type' => 'topic', 'default_publish_routing_key' => 'order.new'],
        'queues' => ['orders.due' => ['binding_keys' => ['order.#']]],
    ]);
}

function now(): int
{
    return (int) floor(microtime(true) * 1000);
}
