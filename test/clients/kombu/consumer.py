"""Consumes COUNT orders and prints each as a line of JSON."""

import base64
import json
import os
import time

import kombu

# With the plugin: type="x-delayed-message", arguments={"x-delayed-type": "topic"}
EXCHANGE = kombu.Exchange(os.environ["EXCHANGE"], type="topic", durable=True)
QUEUE = kombu.Queue(os.environ["QUEUE"], EXCHANGE, routing_key="order.#")

left = int(os.environ["COUNT"])


def show(value):
    """Returns a value with its type."""
    if isinstance(value, dict):
        return {key: show(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [show(inner) for inner in value]
    return type(value).__name__ + " " + repr(value)


def received(message):
    global left
    line = {
        "at": time.time_ns() // 1_000_000,
        "body": base64.b64encode(bytes(message.body)).decode(),
        "key": message.delivery_info["routing_key"],
        "properties": show({k: v for k, v in message.properties.items() if k != "application_headers"}),
        "headers": show(message.headers),
    }
    print(json.dumps(line), flush=True)
    message.ack()
    left -= 1


def main():
    with kombu.Connection(os.environ["AMQP_URL"]) as connection:
        with connection.Consumer([QUEUE], on_message=received, prefetch_count=10):
            print("ready", flush=True)
            while left > 0:
                connection.drain_events()


main()
