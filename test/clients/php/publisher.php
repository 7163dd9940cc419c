<?php
// Publishes COUNT orders with a delay.

require __DIR__ . '/connect.php';

const DELAYS = [null, 0, -5, 250, 700.9, 1200, '450', 3000]; // ms

function declared(AMQPChannel $channel): AMQPExchange
{
    $exchange = new AMQPExchange($channel);
    $exchange->setName(getenv('EXCHANGE') ?: 'orders.delayed');
    // With the plugin: setType('x-delayed-message'), setArgument('x-delayed-type', 'topic')
    $exchange->setType(AMQP_EX_TYPE_TOPIC);
    $exchange->setFlags(AMQP_DURABLE);
    $exchange->declareExchange();
    return $exchange;
}

function headers(int $n, int|float|string|null $delay): array
{
    $every = [
        'text' => 'grüße',
        'binary' => "\x00\xff\x80",
        'yes' => true,
        'no' => false,
        'number' => $n,
        'negative' => -$n,
        'large' => 2 ** 40 + $n,
        'double' => 12.34,
        'decimal' => new AMQPDecimal(2, 1234),
        'time' => new AMQPTimestamp(1769688000),
        'nothing' => null,
        'list' => [$n, 'two', true, [3], ['four' => 4]],
        'table' => ['customer' => ['id' => $n, 'name' => 'Ann'], 'tags' => ['a', 'b']],
    ];
    return $delay === null ? $every : $every + ['x-delay' => $delay];
}

function attributes(int $n, int|float|string|null $delay): array
{
    $every = [
        'content_type' => 'text/plain',
        'content_encoding' => 'identity',
        'headers' => headers($n, $delay),
        'delivery_mode' => 1 + $n % 2,
        'priority' => 1 + $n % 9,
        'correlation_id' => "correlation-$n",
        'reply_to' => 'replies',
        'expiration' => '600000',
        'timestamp' => 1769688000 + $n,
        'type' => 'order',
        'user_id' => 'guest',
        'app_id' => 'shop',
    ];
    return $n % 3 ? $every + ['message_id' => "php-$n"] : $every;
}

$connection = connect();
$channel = new AMQPChannel($connection);
$exchange = declared($channel);
$count = (int) getenv('COUNT');
$open = array_fill(1, $count, true);
$channel->confirmSelect();
$channel->setConfirmCallback(function (int $tag, bool $multiple) use (&$open): bool {
    $done = $multiple ? range(1, $tag) : [$tag];
    $open = array_diff_key($open, array_flip($done));
    return $open !== [];
});
$bytes = implode('', array_map('chr', range(0, 255)));
for ($n = 0; $n < $count; $n++) {
    $body = sprintf("%d %d\n", $n, floor(microtime(true) * 1000)) . $bytes;
    $exchange->publish($body, "order.$n", AMQP_NOPARAM, attributes($n, DELAYS[$n % count(DELAYS)]));
}
$channel->waitForConfirm(60);
$connection->disconnect();
