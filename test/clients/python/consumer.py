"""Consumes COUNT orders and prints each as a line of JSON."""

import base64
import json
import os
import time

import pika

EXCHANGE = os.environ.get("EXCHANGE", "orders")
QUEUE = os.environ["QUEUE"]
PROPERTIES = (
    "content_type content_encoding delivery_mode priority correlation_id reply_to expiration "
    "message_id timestamp type user_id app_id"
).split()


def declare(channel):
    # With the plugin: exchange_type="x-delayed-message", arguments={"x-delayed-type": "topic"}
    channel.exchange_declare(exchange=EXCHANGE, exchange_type="topic", durable=True)


def show(value):
    """Returns a value with its type."""
    if isinstance(value, dict):
        return {key: show(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [show(inner) for inner in value]
    return type(value).__name__ + " " + repr(value)


class Printer:
    def __init__(self, left):
        self.left = left

    def received(self, channel, method, properties, body):
        line = {
            "at": time.time_ns() // 1_000_000,
            "body": base64.b64encode(body).decode(),
            "key": method.routing_key,
            "properties": {name: show(getattr(properties, name)) for name in PROPERTIES},
            "headers": show(properties.headers or {}),
        }
        print(json.dumps(line), flush=True)
        channel.basic_ack(method.delivery_tag)
        self.left -= 1
        if self.left == 0:
            channel.stop_consuming()


def main():
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    channel = connection.channel()
    declare(channel)
    channel.queue_declare(queue=QUEUE, durable=True)
    channel.queue_bind(queue=QUEUE, exchange=EXCHANGE, routing_key="order.#")
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume(queue=QUEUE, on_message_callback=Printer(int(os.environ["COUNT"])).received)
    print("ready", flush=True)
    channel.start_consuming()
    connection.close()


main()
