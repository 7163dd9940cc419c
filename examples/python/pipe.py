"""Serves the producer over a pipe as in docs/pipe.md: one request per line on standard
input, one answer per line on standard output, in the same order.

    python3 pipe.py [--noting]

DUEFLEET_REDIS_ADDRS is the address of Redis, DUEFLEET_REDIS_PREFIX the prefix of its keys.
"""

import base64
import json
import os
import re
import sys
from datetime import datetime, timedelta, timezone

from producer import Exists, NotFound, Producer, ProducerError, after, at

TASK = {"in", "at", "payload", "payload_base64", "content_type", "headers", "if_absent"}
FIELDS = {"schedule": TASK, "reschedule": {"in", "at"}, "cancel": set(), "get": set()}
UNITS = {"d": 86400000, "h": 3600000, "m": 60000, "s": 1000, "ms": 1, "us": 1e-3, "ns": 1e-6}


class Misunderstood(Exception):
    """A line that is not a request."""


def once(pairs):
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Misunderstood("a field is given twice")
    return fields


def parse(line):
    try:
        request = json.loads(line, object_pairs_hook=once)
    except (ValueError, RecursionError) as e:
        raise Misunderstood(str(e)) from e
    if not isinstance(request, dict):
        raise Misunderstood("want an object")
    return request


def check(request):
    verb = request.get("verb")
    if verb not in FIELDS:
        raise Misunderstood("verb: want schedule, cancel, reschedule or get")
    for name, value in request.items():
        if name not in FIELDS[verb] | {"verb", "topic", "id"}:
            raise Misunderstood("%s: %s takes no such field" % (name, verb))
        wanted = {"headers": dict, "if_absent": bool, "at": (str, int)}.get(name, str)
        if not isinstance(value, wanted):
            raise Misunderstood("%s: of the wrong type" % name)
    for name in ("topic", "id"):
        if name not in request:
            raise Misunderstood("%s: is needed" % name)
    if not all(isinstance(v, str) for v in request.get("headers", {}).values()):
        raise Misunderstood("headers: of the wrong type")
    if {"payload", "payload_base64"} <= request.keys():
        raise Misunderstood("payload, payload_base64: only one of them may be given")


def when(request):
    if ("in" in request) == ("at" in request):
        raise Misunderstood("in, at: one of them is needed")
    if "in" in request:
        text = request["in"]
        if not re.fullmatch(r"[+-]?([0-9.]+(d|h|ms|us|ns|m|s))+|0", text):
            raise Misunderstood("in: want a duration")
        parts = re.findall(r"([0-9.]+)(d|h|ms|us|ns|m|s)", text)
        ms = int(sum(float(n) * UNITS[unit] for n, unit in parts))
        return after(-ms if text.startswith("-") else ms)
    moment = request["at"]
    if isinstance(moment, int):
        return at(moment)
    try:
        instant = datetime.fromisoformat(moment)
        return at((instant - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1))
    except (ValueError, TypeError) as e:
        raise Misunderstood("at: want RFC 3339 with a zone, or milliseconds") from e


def payload(request):
    if "payload_base64" not in request:
        return request.get("payload", "").encode()
    try:
        return base64.b64decode(request["payload_base64"], validate=True)
    except ValueError as e:
        raise Misunderstood("payload_base64: %s" % e) from e


def instant(ms):
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def due(ms):
    return {"due": instant(ms), "due_ms": ms}


def stored(task):
    answer = {"state": task.state, **due(task.due), "first_due": instant(task.first_due), "first_due_ms": task.first_due}
    answer |= {"scheduled": instant(task.scheduled), "scheduled_ms": task.scheduled}
    if task.next not in (None, task.due):
        answer["next_attempt"] = instant(task.next)
    answer |= {"attempts": task.attempts, "redelivered": task.redelivered, "content_type": task.content_type, "headers": task.headers}
    try:
        answer["payload"] = task.payload.decode()
    except UnicodeDecodeError:
        answer["payload_base64"] = base64.b64encode(task.payload).decode()
    if task.reason:
        answer["reason"] = task.reason
    return answer


def carry_out(producer, request):
    verb, topic, id = request["verb"], request["topic"], request["id"]
    if verb == "schedule":
        return due(producer.schedule(
            topic, id, when(request), payload(request),
            request.get("content_type", ""), request.get("headers"), request.get("if_absent", False)))
    if verb == "reschedule":
        return due(producer.reschedule(topic, id, when(request)))
    if verb == "cancel":
        producer.cancel(topic, id)
        return {"cancelled": True}
    return stored(producer.get(topic, id))


def answer(producer, line):
    request = {}
    try:
        request = parse(line)
        check(request)
        result = {"code": 0, **carry_out(producer, request)}
    except Misunderstood as e:
        result = {"code": 2, "error": str(e), "retry": False}
    except NotFound as e:
        result = {"code": 3, "error": str(e), "retry": False}
    except Exists as e:
        result = {"code": 4, "error": str(e), "retry": False}
    except ProducerError as e:
        result = {"code": 1, "error": str(e), "retry": e.retry}
    return {name: request[name] for name in ("verb", "topic", "id") if name in request} | result


def main():
    producer = Producer(
        os.environ.get("DUEFLEET_REDIS_ADDRS", "127.0.0.1:6379"),
        os.environ.get("DUEFLEET_REDIS_PREFIX", "duefleet"),
        noting="--noting" in sys.argv[1:])
    for number, line in enumerate(sys.stdin.buffer, 1):
        if line.strip():
            sys.stdout.buffer.write(json.dumps({"line": number, **answer(producer, line)}).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
