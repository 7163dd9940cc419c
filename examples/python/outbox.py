"""Orders whose timeout is scheduled in the transaction that places them."""

import os

import psycopg2

SCHEDULE = "INSERT INTO duefleet_outbox (topic, id, delay_ms, payload) VALUES ('orders', %s, %s, %s)"
CANCEL = "INSERT INTO duefleet_outbox (action, topic, id) VALUES ('cancel', 'orders', %s)"


def place(db, order):
    with db, db.cursor() as cursor:  # commits at the end, or rolls back after an exception
        cursor.execute("INSERT INTO orders (id) VALUES (%s)", (order,))
        cursor.execute(SCHEDULE, (order, 30 * 60 * 1000, b'{"id":"%s"}' % order.encode()))


def pay(db, order):
    with db, db.cursor() as cursor:
        cursor.execute(CANCEL, (order,))
        cursor.execute("UPDATE orders SET paid = true WHERE id = %s", (order,))
        if cursor.rowcount == 0:
            raise LookupError("no order " + order)


def main():
    db = psycopg2.connect(os.environ["DATABASE_URL"])
    with db, db.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, paid boolean NOT NULL DEFAULT false)")
    place(db, "order-1")
    place(db, "order-2")
    pay(db, "order-1")
    try:
        pay(db, "order-3")
    except LookupError as e:
        print("rolled back:", e)
    db.close()


main()
