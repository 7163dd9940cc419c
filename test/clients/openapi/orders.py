"""Schedules, reads, moves and cancels a task with a client that is generated from the server's
own description, shows that an unknown token is refused, and sends a batch."""

import json
import os
import sys
import urllib.request
from datetime import datetime, timezone

sys.path.insert(0, "node_modules/.generated/python")
import duefleet_client as duefleet  # noqa: E402


def client(token):
    configuration = duefleet.Configuration(host=os.environ["URL"])
    configuration.access_token = token
    return duefleet.TasksApi(duefleet.ApiClient(configuration))


def refusal(call, *args, **options):
    """Returns the status and the problem of a request that must fail."""
    try:
        call(*args, **options)
    except duefleet.ApiException as error:
        return error.status, json.loads(error.body)
    raise AssertionError("the request was accepted")


def batch(topic, *lines):
    """Sends a batch and returns the answers. The generated client would send the lines as one
    JSON string, because it takes application/x-ndjson for JSON."""
    request = urllib.request.Request(
        f"{os.environ['URL']}/v1/topics/{topic}/tasks",
        data="".join(json.dumps(line) + "\n" for line in lines).encode(),
        headers={"Authorization": f"Bearer {os.environ['TOKEN']}", "Content-Type": "application/x-ndjson"},
    )
    with urllib.request.urlopen(request) as answers:
        return [json.loads(answer) for answer in answers]


tasks = client(os.environ["TOKEN"])
task = ("orders", "o/2 é")

stored = tasks.schedule(*task, _in="30m", priority=3, if_none_match="*", body={"order": 1})
assert stored.id == task[1], stored

status, problem = refusal(tasks.schedule, *task, _in="30m", if_none_match="*", body={"order": 2})
assert (status, problem["code"], problem["done"], problem["retry"]) == (412, "exists", "no", False)

moved = tasks.reschedule(*task, at="2099-12-01T10:00:00+01:00")
assert moved.due == datetime(2099, 12, 1, 9, tzinfo=timezone.utc), moved

read = tasks.get(*task)
assert (read.state, json.loads(read.payload), read.priority) == ("waiting", {"order": 1}, 3), read

status, problem = refusal(client("0" * 64).cancel, *task)
assert (status, problem["code"]) == (401, "unauthorized")

tasks.cancel(*task)
status, problem = refusal(tasks.cancel, *task)
assert (status, problem["code"]) == (404, "not_found")

answers = batch(
    "orders",
    {"verb": "schedule", "id": "o/3 é", "in": "1h", "payload": {"order": 3}},
    {"verb": "cancel", "id": "o/3 é"},
    {"verb": "cancel", "id": "o/3 é"},
    {"verb": "schedule", "id": "o/4"},
)
assert [answer["status"] for answer in answers] == [200, 200, 404, 400], answers
assert (answers[3]["field"], answers[3]["rule"]) == ("in, at", "one of them is needed"), answers[3]
