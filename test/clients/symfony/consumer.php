<?php
// Runs a worker until it has carried out COUNT orders. Each prints a line of JSON.

require __DIR__ . '/messenger.php';

use Symfony\Component\Messenger\Handler\HandlersLocator;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware\HandleMessageMiddleware;
use Symfony\Component\Messenger\Worker;

$left = (int) getenv('COUNT');
$handle = function (Order $order) use (&$left, &$worker): void {
    $line = ['number' => $order->number, 'try' => 0, 'sent' => $order->sent, 'delay' => $order->delay, 'at' => now()];
    echo json_encode($line), "\n";
    $left--;
    if ($left === 0) {
        $worker->stop();
    }
};
$bus = new MessageBus([new DelayInDuefleet(), new HandleMessageMiddleware(new HandlersLocator([Order::class => [$handle]]))]);
$transport = due();
$transport->setup();
$worker = new Worker(['due' => $transport], $bus);
echo "ready\n";
$worker->run(['sleep' => 10000]);
