-- The outbox of duefleet, schema version 1, for PostgreSQL 13 and later. One row is one
-- request. A row is written in the application's transaction and removed when Redis has it.
-- docs/outbox.md describes the columns for programs that write rows themselves.

CREATE TABLE duefleet_outbox_schema (
    version integer NOT NULL,
    outbox  uuid    NOT NULL DEFAULT gen_random_uuid() -- tells rows of two outboxes apart
);
INSERT INTO duefleet_outbox_schema (version) VALUES (1);

CREATE SEQUENCE duefleet_outbox_seq;

CREATE TABLE duefleet_outbox (
    seq            bigint      PRIMARY KEY, -- set by the trigger
    inserted_at    timestamptz NOT NULL,    -- set by the trigger
    action         text        NOT NULL DEFAULT 'schedule',
    topic          text        NOT NULL,
    id             text        NOT NULL,
    due_ms         bigint,                  -- Unix time in milliseconds
    delay_ms       bigint,                  -- from inserted_at; 0 is now
    if_absent      boolean     NOT NULL DEFAULT false,
    if_present     boolean     NOT NULL DEFAULT false,
    payload        bytea,
    content_type   text,
    headers        json,                    -- an object of strings
    routing_key    text,
    priority       smallint,
    expiration_ms  bigint,
    correlation_id text,
    reply_to       text,
    failed         text,                    -- set by the relay: the rule that the row breaks
    CONSTRAINT action_is_schedule_cancel_or_reschedule CHECK (action IN ('schedule', 'cancel', 'reschedule')),
    CONSTRAINT either_due_ms_or_delay_ms_except_for_cancel
        CHECK (num_nonnulls(due_ms, delay_ms) = CASE action WHEN 'cancel' THEN 0 ELSE 1 END)
) WITH (
    -- Rows live for milliseconds. Vacuum removes them soon, so that the relay reads few pages.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX duefleet_outbox_open ON duefleet_outbox (seq) WHERE failed IS NULL;
CREATE INDEX duefleet_outbox_order ON duefleet_outbox (topic, id, seq) WHERE failed IS NULL;

-- The lock lasts until the transaction ends. Another transaction with the same topic and ID
-- waits for it, and takes its number afterwards. So the numbers of an ID are in the order of
-- the commits.
-- A relay that sleeps shares another lock. If the trigger can't have that one for a moment,
-- it notifies: the commit wakes the relay. Notifications are dear, because PostgreSQL lets
-- transactions that notify commit one after another.
CREATE FUNCTION duefleet_outbox_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(NEW.topic || '/' || NEW.id, 0));
    NEW.seq := nextval((quote_ident(TG_TABLE_SCHEMA) || '.duefleet_outbox_seq')::regclass);
    NEW.inserted_at := clock_timestamp();
    IF pg_try_advisory_lock(hashtext('duefleet_outbox'), TG_RELID::int) THEN
        PERFORM pg_advisory_unlock(hashtext('duefleet_outbox'), TG_RELID::int);
    ELSE
        PERFORM pg_notify('duefleet_outbox', '');
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER duefleet_outbox_insert BEFORE INSERT ON duefleet_outbox
    FOR EACH ROW EXECUTE FUNCTION duefleet_outbox_insert();
