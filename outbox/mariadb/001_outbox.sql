-- The outbox of duefleet, schema version 1, for MariaDB 10.6 and later. One row is one
-- request. A row is written in the application's transaction and removed when Redis has it.
-- docs/outbox.md describes the columns for programs that write rows themselves.
--
-- MariaDB commits each statement that defines something. So a repeat of this file after a
-- crash must do no harm. Its last statement makes the version.

-- The locks. A row is a topic and an ID that a transaction named lately. The relay removes
-- rows that nobody used for some time.
CREATE TABLE IF NOT EXISTS duefleet_outbox_id (
    topic   varbinary(65)  NOT NULL,
    id      varbinary(256) NOT NULL,
    used_at datetime       NOT NULL, -- UTC
    PRIMARY KEY (topic, id),
    KEY duefleet_outbox_id_used_at (used_at)
) ENGINE = InnoDB;

CREATE SEQUENCE IF NOT EXISTS duefleet_outbox_seq ENGINE = InnoDB;

-- Text is compared byte by byte. The columns hold one byte more than the rules allow. So the
-- relay finds a text that is too long also if the sql_mode lets MariaDB cut it.
CREATE TABLE IF NOT EXISTS duefleet_outbox (
    seq            bigint         NOT NULL DEFAULT 0, -- set by a trigger
    inserted_at    datetime(3)    NOT NULL DEFAULT '1970-01-01', -- UTC, set by a trigger
    action         varbinary(16)  NOT NULL DEFAULT 'schedule',
    topic          varbinary(65)  NOT NULL,
    id             varbinary(256) NOT NULL,
    due_ms         bigint,                            -- Unix time in milliseconds
    delay_ms       bigint,                            -- from inserted_at; 0 is now
    if_absent      boolean        NOT NULL DEFAULT false,
    if_present     boolean        NOT NULL DEFAULT false,
    payload        longblob,
    content_type   varbinary(256),
    headers        json,                              -- an object of strings
    routing_key    varbinary(256),
    priority       smallint,
    expiration_ms  bigint,
    correlation_id varbinary(256),
    reply_to       varbinary(256),
    failed         text CHARACTER SET utf8mb4,        -- set by the relay: the rule that the row breaks
    PRIMARY KEY (seq),
    KEY duefleet_outbox_order (topic, id, seq),
    CONSTRAINT action_is_schedule_cancel_or_reschedule CHECK (action IN ('schedule', 'cancel', 'reschedule')),
    CONSTRAINT either_due_ms_or_delay_ms_except_for_cancel
        CHECK ((due_ms IS NOT NULL) + (delay_ms IS NOT NULL) = IF(action = 'cancel', 0, 1))
) ENGINE = InnoDB;

-- The lock on the row lasts until the transaction ends. Another transaction with the same
-- topic and ID waits for it, and takes its number afterwards. So the numbers of an ID are in
-- the order of the commits. AUTO_INCREMENT would give the number before the lock.
CREATE OR REPLACE TRIGGER duefleet_outbox_lock BEFORE INSERT ON duefleet_outbox FOR EACH ROW
    INSERT INTO duefleet_outbox_id (topic, id, used_at) VALUES (NEW.topic, NEW.id, UTC_TIMESTAMP())
    ON DUPLICATE KEY UPDATE used_at = UTC_TIMESTAMP();

CREATE OR REPLACE TRIGGER duefleet_outbox_insert BEFORE INSERT ON duefleet_outbox FOR EACH ROW
    FOLLOWS duefleet_outbox_lock
    SET NEW.seq = NEXT VALUE FOR duefleet_outbox_seq, NEW.inserted_at = UTC_TIMESTAMP(3);

CREATE TABLE duefleet_outbox_schema (
    version int      NOT NULL,
    outbox  char(36) CHARACTER SET ascii NOT NULL -- tells rows of two outboxes apart
) ENGINE = InnoDB AS SELECT 1 AS version, uuid() AS outbox;
