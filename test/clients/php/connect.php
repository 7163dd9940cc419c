<?php

/** Returns a connection to the vhost that AMQP_URL names. */
function connect(): AMQPConnection
{
    $url = parse_url(getenv('AMQP_URL'));
    $connection = new AMQPConnection([
        'host' => $url['host'],
        'port' => $url['port'],
        'login' => $url['user'],
        'password' => $url['pass'],
        'vhost' => rawurldecode(substr($url['path'], 1)),
    ]);
    $connection->connect();
    return $connection;
}
