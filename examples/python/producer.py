"""A producer for duefleet, written from docs/protocol.md.

    producer = Producer("127.0.0.1:6379")
    due = producer.schedule("orders", "o-1", after(30 * 60 * 1000), b'{"order":1}')
    producer.cancel("orders", "o-1")

Times are whole milliseconds by Redis's clock. It talks to one Redis server. Use a
Producer from one thread only. `producer conform` tests it; see README.md.
"""

import hashlib
import os
import pathlib
import re
import struct
import time
from dataclasses import dataclass, field

import redis
import xxhash
from redis.backoff import NoBackoff
from redis.retry import Retry

CALL_LIFE = 3000  # ms: a script that reaches Redis later does nothing
CLOCK_AGE = 60  # seconds that an estimate of Redis's clock is used
NOTE_LIFE = 24 * 60 * 60 * 1000  # ms that a note for consumers is kept
REPEATS = 5
RESTARTS = 100
CENTURY = 36525 * 24 * 60 * 60 * 1000  # ms
MAX_PAYLOAD = 256 << 10


class ProducerError(Exception):
    """A call that failed. If retry is true, it may have taken effect, or may do so within
    three seconds, and the same call may succeed later."""

    retry = True


class RuleError(ProducerError):
    """Input that breaks a rule. Nothing was sent."""

    retry = False


class UnknownTopic(ProducerError):
    """No scanner serves the topic."""

    retry = False


class NotFound(ProducerError):
    """There is no such task. After a reschedule, at is the time of the search, in ms by the shard's clock."""

    retry = False

    def __init__(self, text, at=None):
        super().__init__(text)
        self.at = at


class Exists(ProducerError):
    """There is already a task with this ID."""

    retry = False


class _Moved(Exception):
    """A shard has seen a newer placement than the producer's."""


class _Late(Exception):
    """A script reached Redis after its not_after."""


class _NotExecuted(Exception):
    """A command that was certainly not executed. It may succeed soon."""


class _Unknown(Exception):
    """A command that may have been executed, or may still be."""


def after(ms):
    """A due time this many ms after Redis's now."""
    return "+%d" % max(ms, 0)


def at(ms):
    """A due time by Redis's clock. A time in the past means now."""
    return "%d" % ms


@dataclass
class Task:
    """A stored task. next is the time of its next claim, or the end of its lease; None if parked."""

    state: str
    due: int
    first_due: int
    scheduled: int
    attempts: int = 0
    redelivered: bool = False
    next: int | None = None
    reason: str = ""
    content_type: str = "application/octet-stream"
    headers: dict = field(default_factory=dict)
    payload: bytes = b""


@dataclass(frozen=True)
class Placement:
    """The shards of a topic's tasks."""

    text: str
    epoch: int
    shards: int
    previous: int
    phase: str

    @classmethod
    def parse(cls, text):
        epoch, shards, previous, phase = text.split(" ")
        return cls(text, int(epoch), int(shards), int(previous), phase)

    def new(self, id):
        return place(id, self.shards)

    def old(self, id):
        return place(id, self.previous)

    def moving(self, id):
        return self.phase == "migrating" and self.old(id) != self.new(id)


def place(id, shards):
    """The shard of an ID: jump consistent hashing over its 64-bit xxhash."""
    key = xxhash.xxh64(id.encode()).intdigest()
    b, j = -1, 0
    while j < shards:
        b = j
        key = (key * 2862933555777941757 + 1) & 0xFFFFFFFFFFFFFFFF
        j = int((b + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return b


class Script:
    """One of the scripts in docs/protocol."""

    def __init__(self, name, keys):
        folder = pathlib.Path(__file__).resolve().parents[2] / "docs" / "protocol"
        self.text = (folder / (name + ".lua")).read_bytes()
        self.sha = hashlib.sha1(self.text).hexdigest()
        self.keys = keys.split()


PUT = Script("put", "due task fence handled wake")
DELETE = Script("delete", "due task fence handled")
RESCHEDULE = Script("reschedule", "due task fence handled wake")
FENCE = Script("fence", "task fence handled")
READ = Script("read", "due task fence")
NOTE = Script("note", "past")


class Producer:
    """Schedules tasks. With noting, consumers that retry (Go's package consumer) learn
    of cancelled and rescheduled tasks."""

    def __init__(self, address="127.0.0.1:6379", prefix="duefleet", noting=False, **options):
        host, _, port = address.rpartition(":")
        # A client that repeats commands by itself could execute outdated ones.
        never = Retry(NoBackoff(), 0)
        self._pool = redis.ConnectionPool(host=host, port=int(port), retry=never, socket_timeout=2 * CALL_LIFE / 1000, **options)
        self._prefix = prefix
        self._noting = noting
        self._placements = {}  # by topic, as last read
        self._asked = None  # Redis's time in ms, and our own clock at that moment

    # The operations. Each uses the known placement, and starts again with a newer one
    # if a shard has seen one.

    def schedule(self, topic, id, when, payload=b"", content_type="", headers=None, if_absent=False):
        """Stores a task, replaces one with the same ID, and returns the due time."""
        check_name(topic, id)
        self._check_when(when)
        body = encode_body(payload, content_type, headers or {})
        op = os.urandom(6)

        def put(p, moving):
            mode = "absent" if if_absent else ""
            reply = self._change(PUT, topic, p.new(id), lambda limit: [p.text, op, limit, mode, moving, id, when, body])
            if reply[1] == 0:
                raise Exists("there is a task %r already" % id)
            return reply[1]

        def under(p):
            if not p.moving(id):
                return put(p, 0)
            there = self._ask(FENCE, topic, p.old(id), p.text, id)[1]
            if if_absent and there:
                record = Record(there)
                if record.op == op:
                    return record.due  # stored before the change began
                raise Exists("there is a task %r already" % id)
            due = put(p, 1)
            if not if_absent:
                self._close(topic, p, id)
            return due

        return self._operate(topic, under)

    def cancel(self, topic, id):
        """Removes a task. Returns whether its message may already be on its way."""
        check_name(topic, id)
        found, now = self._delete(topic, id)
        if self._noting and (found != 1 or self._note(topic, id, "", "")):
            self._note(topic, id, now, "")
            found = max(found, self._delete(topic, id)[0])  # stored before its consumer could see the note
        if not found:
            raise NotFound("there is no task %r" % id)
        return found == 2

    def _delete(self, topic, id):
        found, now = 0, 0  # these results are kept if the operation starts again

        def delete(p, shard, handled):
            nonlocal found, now
            reply = self._change(DELETE, topic, shard, lambda limit: [p.text, limit, handled, id])
            found, now = max(found, reply[1]), max(now, reply[2])

        def under(p):
            if p.moving(id):
                delete(p, p.old(id), 0)
            delete(p, p.new(id), 1 if p.moving(id) else 0)

        self._operate(topic, under)
        return found, now

    def reschedule(self, topic, id, when):
        """Gives a task another due time, and returns it."""
        check_name(topic, id)
        self._check_when(when)
        op = os.urandom(6)
        try:
            return self._reschedule(topic, id, when, op)
        except NotFound as missing:
            if not self._noting:
                raise
            now = missing.at
        self._note(topic, id, now, now + int(when) if when.startswith("+") else when)
        return self._reschedule(topic, id, when, op)  # its consumer may have stored it before it could see the note

    def _reschedule(self, topic, id, when, op):
        def move(p, moving, fallback):
            reply = self._change(RESCHEDULE, topic, p.new(id), lambda limit: [p.text, op, limit, id, when, moving, fallback])
            return reply[0] == b"ok", reply[1]

        def under(p):
            if not p.moving(id):
                moved, ms = move(p, 0, b"")
            else:
                there = self._ask(FENCE, topic, p.old(id), p.text, id)[1] or b""
                if there and Record(there).op == op:
                    return Record(there).due
                moved, ms = move(p, 1, there)
                if moved or there:
                    self._close(topic, p, id)
            if not moved:
                raise NotFound("there is no task %r" % id, ms)
            return ms

        return self._operate(topic, under)

    def get(self, topic, id):
        """Reads a task."""
        check_name(topic, id)

        def under(p):
            shards = [p.old(id), p.new(id)] if p.moving(id) else [p.new(id)]
            for shard in shards:
                reply = self._ask(READ, topic, shard, p.text, id)
                if reply[0] == b"ok":
                    return Record(reply[2]).task(float(reply[1]))
            raise NotFound("there is no task %r" % id)

        return self._operate(topic, under)

    # Combining and repeating scripts.

    def _operate(self, topic, under):
        placement = self._placements.get(topic) or self._read_placement(topic)
        for _ in range(RESTARTS):
            try:
                return under(placement)
            except _Late:
                self._asked = None
            except _Moved as moved:
                self._asked = None
                seen = Placement.parse(moved.args[0])
                placement = self._read_placement(topic)
                if placement.epoch == seen.epoch and placement != seen:
                    raise ProducerError("two placements of one epoch: %r is in force, and a shard has seen %r" % (placement.text, seen.text))
                if placement.epoch < seen.epoch:  # Redis lost it in a failover; scanners restore it
                    placement = self._learn(topic, seen)
        raise ProducerError("refused %d times during one call" % RESTARTS)

    def _read_placement(self, topic):
        self._placements.pop(topic, None)
        text = self._repeatable("HGET", "%s:placement:{%s}" % (self._prefix, topic), "value")
        return self._learn(topic, text and Placement.parse(text.decode()))

    def _learn(self, topic, placement):
        if not placement or placement.phase == "removed":
            raise UnknownTopic("no scanner serves the topic %s" % topic)
        self._placements[topic] = placement
        return placement

    def _close(self, topic, p, id):
        """Removes the old copy of a stored task. From here on, the operation doesn't start again."""
        for _ in range(RESTARTS):
            try:
                self._change(DELETE, topic, p.old(id), lambda limit: [p.text, limit, 0, id])
                return
            except _Moved:
                return  # the movers of that change removed the copy
            except _Late:
                self._asked = None
        raise ProducerError("reached late %d times during one call" % RESTARTS)

    def _change(self, script, topic, shard, arguments):
        """Sends a script with a not_after. A copy must be outdated before the next one is sent."""
        keys = self._keys(script, "%s:%d" % (topic, shard))
        pause, failure = 0.02, None
        for _ in range(REPEATS + 1):
            limit = self._now() + CALL_LIFE
            try:
                return self._answer(self._execute(script, keys, arguments(limit)))
            except _NotExecuted as e:
                failure = e
                time.sleep(pause)
                pause *= 3
            except _Unknown as e:
                failure = e
                self._outlast(limit)
        raise ProducerError(str(failure))

    def _ask(self, script, topic, shard, *arguments):
        """Sends a script that may be repeated at once."""
        keys = self._keys(script, "%s:%d" % (topic, shard))
        return self._answer(self._again(lambda: self._execute(script, keys, arguments)))

    def _note(self, topic, id, at, due):
        keys = self._keys(NOTE, "%s:%s" % (topic, id))
        return self._again(lambda: self._execute(NOTE, keys, [at, due, NOTE_LIFE]))

    def _repeatable(self, *words):
        return self._again(lambda: self._command(*words))

    def _again(self, send):
        pause = 0.02
        for left in range(REPEATS, -1, -1):
            try:
                return send()
            except (_NotExecuted, _Unknown) as e:
                self._asked = None
                if not left:
                    raise ProducerError(str(e)) from e
                time.sleep(pause)
                pause *= 3

    def _keys(self, script, place):
        return ["%s:%s:{%s}" % (self._prefix, kind, place) for kind in script.keys]

    def _answer(self, reply):
        if reply[0] == b"moved":
            raise _Moved(reply[1].decode())
        if reply[0] == b"late":
            raise _Late()
        return reply

    def _execute(self, script, keys, arguments):
        try:
            return self._command("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except redis.exceptions.NoScriptError:
            return self._command("EVAL", script.text, len(keys), *keys, *arguments)

    def _command(self, *words):
        try:
            connection = self._pool.get_connection(words[0])
        except (redis.ConnectionError, redis.TimeoutError) as e:
            raise _NotExecuted(str(e)) from e
        try:
            connection.send_command(*words)
            return connection.read_response()
        except redis.exceptions.NoScriptError:
            raise
        except (redis.exceptions.BusyLoadingError, redis.exceptions.ReadOnlyError) as e:
            raise _NotExecuted(str(e)) from e
        except redis.ResponseError as e:
            if str(e).split(" ")[0] in ("MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY"):
                raise _NotExecuted(str(e)) from e
            raise ProducerError(str(e)) from e
        except (redis.ConnectionError, redis.TimeoutError) as e:
            connection.disconnect()
            raise _Unknown(str(e)) from e
        finally:
            self._pool.release(connection)

    # The time.

    def _now(self):
        """An estimate of Redis's clock, for uses that need no exact time."""
        if self._asked is None or time.monotonic() - self._asked[1] > CLOCK_AGE:
            self._asked = self._time(), time.monotonic()
        ms, then = self._asked
        return ms + int((time.monotonic() - then) * 1000)

    def _time(self):
        seconds, micros = self._repeatable("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def _outlast(self, limit):
        """Waits until, by Redis's own clock, a copy of a script can no longer take effect."""
        self._asked = None
        while (now := self._time()) <= limit:
            time.sleep((limit - now + 1) / 1000)

    def _check_when(self, when):
        now = self._now()
        due = now + int(when) if when.startswith("+") else int(when)
        if due > now + CENTURY:
            raise RuleError("due: must be at most 100 years ahead")
        return now


# The rules for input.


def check_name(topic, id):
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", topic):
        raise RuleError("topic: must be 1 to 64 of A-Z a-z 0-9 . _ -")
    if not 1 <= len(utf8("id", id)) <= 255:
        raise RuleError("id: must be 1 to 255 bytes of UTF-8")


def utf8(what, text):
    try:
        return text.encode()
    except UnicodeEncodeError as e:
        raise RuleError("%s: must be UTF-8" % what) from e


def check_headers(headers):
    if len(headers) > 32:
        raise RuleError("headers: must be at most 32")
    for key in headers:
        if not 1 <= len(utf8("headers", key)) <= 128:
            raise RuleError("headers: a key must be 1 to 128 bytes of UTF-8")
        if key.lower().startswith("x-duefleet-") or key in ("CC", "BCC"):
            raise RuleError("headers: the key %s is not for tasks" % key)
    if sum(len(utf8("headers", k)) + len(utf8("headers", v)) for k, v in headers.items()) > 64 << 10:
        raise RuleError("headers: must be at most 64 KiB together")


# The record.


def encode_body(payload, content_type, headers):
    """Packs the part of a record that the producer sets."""
    check_headers(headers)
    kind = utf8("content_type", content_type)
    if len(payload) > MAX_PAYLOAD:
        raise RuleError("payload: must be at most %d bytes" % MAX_PAYLOAD)
    if len(kind) > 255:
        raise RuleError("content_type: must be at most 255 bytes of UTF-8")
    if not kind and not headers:
        return b"\0" + payload
    body = b"\1" + bytes([len(kind)]) + kind + bytes([len(headers)])
    for key, value in sorted((k.encode(), v.encode()) for k, v in headers.items()):
        body += bytes([len(key)]) + key + struct.pack(">H", len(value)) + value
    return body + payload


class Record:
    """A record as stored in Redis."""

    def __init__(self, raw):
        if len(raw) < 19 or raw[0] >> 4 != 1:
            raise ProducerError("the record is damaged, or of a newer format")
        self._rest = raw[19:]
        flags = raw[0] & 15
        self.due = int.from_bytes(raw[1:7], "big")
        self.scheduled = int.from_bytes(raw[7:13], "big")
        self.op = raw[13:19]
        self.redelivered = bool(flags & 1)
        self.attempts = self._number(2) if flags & 8 else 0
        if flags & 2:
            self._take(8)  # the score from before a mover exported it
        note = self._take(self._number(2)).decode() if flags & 4 else ""
        self.reason = re.sub(r" @[0-9]{13}$", "", note)  # without its time

    def task(self, score):
        """The whole task. Its state depends on the score."""
        task = Task("waiting", self.due, self.due, self.scheduled, self.attempts, self.redelivered, int(abs(score)) if score != float("inf") else None, self.reason)
        if score < 0:
            task.state = "leased"
        elif task.next is None:
            task.state = "parked"
        if self._number(1):
            task.content_type = self._take(self._number(1)).decode() or task.content_type
            for _ in range(self._number(1)):
                key = self._take(self._number(1)).decode()
                task.headers[key] = self._take(self._number(2)).decode()
        mark = re.fullmatch(r"1 (\d+) (\d+)", task.headers.pop("duefleet-next", ""))  # a consumer's own
        if mark and int(mark[2]) == task.due:
            task.first_due = int(mark[1])
        task.payload = self._rest
        return task

    def _take(self, n):
        if n > len(self._rest):
            raise ProducerError("the record is damaged: it is cut short")
        taken, self._rest = self._rest[:n], self._rest[n:]
        return taken

    def _number(self, size):
        return int.from_bytes(self._take(size), "big")
