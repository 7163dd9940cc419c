"""Runs a worker until it has carried out all orders."""

from celery.signals import worker_ready

from orders import app


@worker_ready.connect
def ready(**_):
    print("ready", flush=True)


app.Worker(pool="solo", quiet=True, loglevel="WARNING", without_gossip=True, without_mingle=True).start()
