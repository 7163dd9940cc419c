<?php
// Publishes COUNT orders with a delay.

require __DIR__ . '/messenger.php';

use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpStamp;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware\SendMessageMiddleware;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Transport\Sender\SenderInterface;
use Symfony\Component\Messenger\Transport\Sender\SendersLocatorInterface;

const DELAYS = [null, 0, -5, 250, 700, 1200, 450, 3000]; // ms

/** Sends every message to one transport. */
final class Senders implements SendersLocatorInterface
{
    public function __construct(private SenderInterface $sender)
    {
    }

    public function getSenders(Envelope $envelope): iterable
    {
        return ['delayed' => $this->sender];
    }
}

$bus = new MessageBus([new DelayInDuefleet(), new SendMessageMiddleware(new Senders(delayed()))]);
for ($n = 0; $n < (int) getenv('COUNT'); $n++) {
    $delay = DELAYS[$n % count(DELAYS)];
    $stamps = [new AmqpStamp(null, AMQP_NOPARAM, ['message_id' => "symfony-$n"])];
    if ($delay !== null) {
        $stamps[] = new DelayStamp($delay);
    }
    $bus->dispatch(new Order($n, now(), $delay ?? 0), $stamps);
}
