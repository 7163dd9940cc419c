"""Publishes COUNT orders with a delay."""

import datetime
import decimal
import os
import time

import kombu

DELAYS = [None, 0, -5, 250, 700, 1200, "450", 3000]  # ms
# With the plugin: type="x-delayed-message", arguments={"x-delayed-type": "topic"}
EXCHANGE = kombu.Exchange("orders.delayed", type="topic", durable=True)


def headers(n, delay):
    every = {
        "text": "grüße",
        "yes": True,
        "no": False,
        "number": n,
        "negative": -n,
        "large": 2**40 + n,
        "double": 12.34,
        "decimal": decimal.Decimal("12.34"),
        "time": datetime.datetime(2026, 1, 29, 12, 0, 0),
        "nothing": None,
        "list": [n, "two", True, None, [3], {"four": 4}],
        "table": {"customer": {"id": n, "name": "Ann"}, "tags": ["a", "b"]},
    }
    if delay is not None:
        every["x-delay"] = delay
    return every


def main():
    url = os.environ["AMQP_URL"]
    with kombu.Connection(url, transport_options={"confirm_publish": True}) as connection:
        producer = connection.Producer(exchange=EXCHANGE)
        for n in range(int(os.environ["COUNT"])):
            body = b"%d %d\n" % (n, time.time_ns() // 1_000_000) + bytes(range(256))
            ids = {"message_id": "kombu-%d" % n} if n % 3 else {}
            producer.publish(
                body,
                routing_key="order.%d" % n,
                headers=headers(n, DELAYS[n % len(DELAYS)]),
                mandatory=True,
                content_type="text/plain",
                content_encoding="binary",
                delivery_mode=1 + n % 2,
                priority=1 + n % 9,
                correlation_id="correlation-%d" % n,
                reply_to="replies",
                expiration=600,
                timestamp=1769688000 + n,
                type="order",
                user_id="guest",
                app_id="shop",
                **ids,
            )


main()
