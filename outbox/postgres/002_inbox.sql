-- The inbox of duefleet, schema version 2: the tasks whose effect is in this database. A
-- handler inserts a row in the transaction of the effect, so both commit or neither does.

CREATE TABLE duefleet_inbox (
    topic      text        NOT NULL,
    id         text        NOT NULL,
    version    text        NOT NULL, -- the row of the outbox, or when the task was scheduled
    step       text        NOT NULL, -- the name of a chain's step, else ''
    handled_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, id, version, step)
);

CREATE INDEX duefleet_inbox_handled_at ON duefleet_inbox (handled_at);

UPDATE duefleet_outbox_schema SET version = 2;
