"""Publishes COUNT orders with a delay."""

import datetime
import decimal
import os
import time

import pika

EXCHANGE = os.environ.get("EXCHANGE", "orders.delayed")
DELAYS = [None, 0, -5, 250, 700, 1200, "450", 3000]  # ms


def declare(channel):
    # With the plugin: exchange_type="x-delayed-message", arguments={"x-delayed-type": "topic"}
    channel.exchange_declare(exchange=EXCHANGE, exchange_type="topic", durable=True)


def headers(n, delay):
    every = {
        "text": "grüße",
        "bytes": b"\x00\xff\x80",
        "yes": True,
        "no": False,
        "number": n,
        "negative": -n,
        "large": 2**40 + n,
        "decimal": decimal.Decimal("12.34"),
        "time": datetime.datetime(2026, 1, 29, 12, 0, 0),
        "nothing": None,
        "list": [n, "two", True, None, [3], {"four": 4}],
        "table": {"customer": {"id": n, "name": "Ann"}, "tags": ["a", "b"]},
    }
    if delay is not None:
        every["x-delay"] = delay
    return every


def properties(n, delay):
    return pika.BasicProperties(
        content_type="text/plain",
        content_encoding="identity",
        headers=headers(n, delay),
        delivery_mode=1 + n % 2,
        priority=1 + n % 9,
        correlation_id="correlation-%d" % n,
        reply_to="replies",
        expiration="600000",
        message_id="python-%d" % n if n % 3 else None,
        timestamp=1769688000 + n,
        type="order",
        user_id="guest",
        app_id="shop",
    )


def main():
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    channel = connection.channel()
    declare(channel)
    channel.confirm_delivery()
    for n in range(int(os.environ["COUNT"])):
        body = b"%d %d\n" % (n, time.time_ns() // 1_000_000) + bytes(range(256))
        channel.basic_publish(
            EXCHANGE, "order.%d" % n, body, properties(n, DELAYS[n % len(DELAYS)]), mandatory=True
        )
    connection.close()


main()
