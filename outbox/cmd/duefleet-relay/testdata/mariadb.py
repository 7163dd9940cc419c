"""What examples/python/outbox.py does, with MariaDB and PyMySQL."""

import os
from urllib.parse import urlsplit

import pymysql

SCHEDULE = "INSERT INTO duefleet_outbox (topic, id, delay_ms, payload) VALUES ('orders', %s, %s, %s)"
CANCEL = "INSERT INTO duefleet_outbox (action, topic, id) VALUES ('cancel', 'orders', %s)"


def transaction(db, change):
    db.begin()
    try:
        with db.cursor() as cursor:
            change(cursor)
    except BaseException:
        db.rollback()
        raise
    db.commit()


def place(cursor, order):
    cursor.execute("INSERT INTO orders (id) VALUES (%s)", (order,))
    cursor.execute(SCHEDULE, (order, 30 * 60 * 1000, b'{"id":"%s"}' % order.encode()))


def pay(cursor, order):
    cursor.execute(CANCEL, (order,))
    if cursor.execute("UPDATE orders SET paid = true WHERE id = %s", (order,)) == 0:
        raise LookupError("no order " + order)


def main():
    url = urlsplit(os.environ["DATABASE_URL"])
    db = pymysql.connect(host=url.hostname, port=url.port, user=url.username, database=url.path[1:])
    with db.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id varchar(40) PRIMARY KEY, paid boolean NOT NULL DEFAULT false)")
    transaction(db, lambda cursor: place(cursor, "order-1"))
    transaction(db, lambda cursor: place(cursor, "order-2"))
    transaction(db, lambda cursor: pay(cursor, "order-1"))
    try:
        transaction(db, lambda cursor: pay(cursor, "order-3"))
    except LookupError as e:
        print("rolled back:", e)
    db.close()


main()
