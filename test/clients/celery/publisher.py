"""Publishes COUNT orders with a delay."""

import datetime
import os

from orders import now, order

DELAYS = [None, 0, -5, 250, 700, 1200, 450, 3000]  # ms


def main():
    for n in range(int(os.environ["COUNT"])):
        delay, sent = DELAYS[n % len(DELAYS)], now()
        args = (n, sent, delay or 0)
        if delay is None:
            order.delay(*args)
        elif n % 3:
            order.apply_async(args, countdown=delay / 1000)
        else:
            due = datetime.datetime.fromtimestamp((sent + delay) / 1000, datetime.timezone.utc)
            order.apply_async(args, eta=due)


main()
