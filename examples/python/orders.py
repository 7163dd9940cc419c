"""Three orders: one is paid in time, one gets more time, and one isn't paid."""

import os

import pika

from tasks import Refused, Tasks


def main():
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    tasks = Tasks(connection, os.environ.get("EXCHANGE", "orders.delayed"))
    for order in ("order-1", "order-2", "order-3"):
        tasks.schedule(order, "30m", b'{"id":"%s"}' % order.encode(), "order.due")
    print("order-1 is paid:", tasks.cancel("order-1"))
    print("order-1 is paid again:", tasks.cancel("order-1"))
    print("order-2 has more time:", tasks.move("order-2", "1h") is not None)
    print("order-3 is due at once:", tasks.move("order-3", "0s") is not None)
    try:
        tasks.move("order-2", "soon")
    except Refused as e:
        print("refused:", e)
    connection.close()


main()
