"""The application with its task, which the publisher and the worker import."""

import json
import os
import time

import celery
import kombu
from celery.worker import state


class DelayedTask(celery.Task):
    """A task whose countdown or eta passes in duefleet instead of in a worker."""

    def apply_async(self, args=None, kwargs=None, countdown=None, eta=None, headers=None, **options):
        headers = dict(headers or {})
        if countdown is not None:
            headers["x-delay"] = int(countdown * 1000)
        elif eta is not None:  # with a time zone
            headers["x-duefleet-due"] = eta.isoformat()
        options.update(exchange="orders.delayed", routing_key="order.new")
        return super().apply_async(args, kwargs, headers=headers, **options)


app = celery.Celery("orders", broker=os.environ["AMQP_URL"], task_cls=DelayedTask)
app.conf.update(
    broker_transport_options={"confirm_publish": True},
    task_default_queue="orders.due",
    task_ignore_result=True,
    task_queues=[kombu.Queue("orders.due", kombu.Exchange("orders", type="topic"), routing_key="order.#")],
    worker_enable_remote_control=False,
    worker_redirect_stdouts=False,
)
count = int(os.environ["COUNT"])
left = count + count // 2


def now():
    return time.time_ns() // 1_000_000


@app.task(name="shop.order", bind=True, max_retries=1)
def order(self, number, sent, delay):
    """Prints a line, and fails at the first try if the number is even."""
    attempt = self.request.retries
    print(json.dumps({"number": number, "try": attempt, "sent": sent, "delay": delay, "at": now()}), flush=True)
    global left
    left -= 1
    if left == 0:
        state.should_stop = True
    if number % 2 == 0 and attempt == 0:
        raise self.retry(args=(number, now(), 300), countdown=0.3)
