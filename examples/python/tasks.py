"""Schedules, moves and cancels tasks over the intake of a topic, with pika."""

import json
import uuid

import pika


class Refused(Exception):
    """A message that broke a rule. Its text is the rule."""


class Tasks:
    """The tasks of one topic, for one thread.

    exchange is the topic's intake.exchange. Each method returns when Redis has answered.
    """

    def __init__(self, connection, exchange):
        self._exchange = exchange
        self._channel = connection.channel()
        self._channel.confirm_delivery()
        self._answers = self._channel.queue_declare("", exclusive=True).method.queue

    def schedule(self, id, delay, body, routing_key):
        """Stores a task that is due in delay, such as "30m". It replaces a task of this ID.

        Returns the due time in Unix milliseconds.
        """
        return self._ask("schedule", id, delay, body, routing_key)["due"]

    def move(self, id, delay):
        """Gives a stored task another due time.

        Returns the due time in Unix milliseconds, or None if no such task is stored.
        """
        return self._ask("move", id, delay).get("due")

    def cancel(self, id):
        """Removes a task. Returns False if no such task is stored."""
        return self._ask("cancel", id)["code"] == "ok"

    def _ask(self, verb, id, delay=None, body=b"", routing_key=""):
        headers = {"x-duefleet-verb": verb}
        if delay is not None:
            headers["x-duefleet-in"] = delay
        correlation_id = str(uuid.uuid4())
        properties = pika.BasicProperties(
            message_id=id,
            delivery_mode=2,
            headers=headers,
            reply_to=self._answers,
            correlation_id=correlation_id,
        )
        self._channel.basic_publish(self._exchange, routing_key, body, properties, mandatory=True)
        answer = self._answer(correlation_id)
        if answer["code"] == "refused":
            raise Refused(answer["reason"])
        return answer

    def _answer(self, correlation_id):
        for method, properties, body in self._channel.consume(self._answers, inactivity_timeout=30):
            if method is None:
                raise TimeoutError("no scanner answered within 30 s; the message is in the queue")
            self._channel.basic_ack(method.delivery_tag)
            if properties.correlation_id == correlation_id:
                return json.loads(body)
