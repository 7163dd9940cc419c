"""Schedules, reads, moves and cancels a task with a client that is generated from the server's
own description, and shows that an unknown token is refused."""

import json
import os
import sys
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
