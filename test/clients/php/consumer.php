<?php
// Consumes COUNT orders and prints each as a line of JSON.

require __DIR__ . '/connect.php';

function declared(AMQPChannel $channel): AMQPExchange
{
    $exchange = new AMQPExchange($channel);
    $exchange->setName(getenv('EXCHANGE') ?: 'orders');
    // With the plugin: setType('x-delayed-message'), setArgument('x-delayed-type', 'topic')
    $exchange->setType(AMQP_EX_TYPE_TOPIC);
    $exchange->setFlags(AMQP_DURABLE);
    $exchange->declareExchange();
    return $exchange;
}

/** Returns a value with its type. */
function show(mixed $value): mixed
{
    if (is_array($value)) {
        return array_map('show', $value);
    }
    return base64_encode(serialize($value));
}

function line(AMQPEnvelope $message): string
{
    $properties = [
        $message->getContentType(), $message->getContentEncoding(), $message->getDeliveryMode(),
        $message->getPriority(), $message->getCorrelationId(), $message->getReplyTo(),
        $message->getExpiration(), $message->getMessageId(), $message->getTimestamp(),
        $message->getType(), $message->getUserId(), $message->getAppId(),
    ];
    return json_encode([
        'at' => (int) floor(microtime(true) * 1000),
        'body' => base64_encode($message->getBody()),
        'key' => $message->getRoutingKey(),
        'properties' => show($properties),
        'headers' => (object) show($message->getHeaders()),
    ], JSON_THROW_ON_ERROR);
}

$connection = connect();
$channel = new AMQPChannel($connection);
$channel->setPrefetchCount(10);
$exchange = declared($channel);
$queue = new AMQPQueue($channel);
$queue->setName(getenv('QUEUE'));
$queue->setFlags(AMQP_DURABLE);
$queue->declareQueue();
$queue->bind($exchange->getName(), 'order.#');
$left = (int) getenv('COUNT');
echo "ready\n";
$queue->consume(function (AMQPEnvelope $message, AMQPQueue $queue) use (&$left): bool {
    echo line($message), "\n";
    $queue->ack($message->getDeliveryTag());
    $left--;
    return $left > 0;
});
$connection->disconnect();
