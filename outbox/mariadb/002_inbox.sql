-- The inbox of duefleet, schema version 2: the tasks whose effect is in this database. A
-- handler inserts a row in the transaction of the effect, so both commit or neither does.

CREATE TABLE IF NOT EXISTS duefleet_inbox (
    topic      varbinary(64)  NOT NULL,
    id         varbinary(255) NOT NULL,
    version    varbinary(255) NOT NULL, -- the row of the outbox, or when the task was scheduled
    step       varbinary(255) NOT NULL, -- the name of a chain's step, else ''
    handled_at datetime(3)    NOT NULL DEFAULT (UTC_TIMESTAMP(3)),
    repeats    int            NOT NULL DEFAULT 0, -- how often a handler found this row
    PRIMARY KEY (topic, id, version, step),
    KEY duefleet_inbox_handled_at (handled_at)
) ENGINE = InnoDB;

UPDATE duefleet_outbox_schema SET version = 2;
