-- The rights of users of the outbox and the inbox on MariaDB. Replace the names of the users.

-- an application
GRANT INSERT ON duefleet_outbox TO app;
-- a relay
GRANT SELECT, UPDATE, DELETE ON duefleet_outbox TO relay;
GRANT SELECT, UPDATE, DELETE ON duefleet_outbox_id TO relay;
-- both
GRANT SELECT ON duefleet_outbox_schema TO app, relay;
-- a consumer with an inbox: for inbox.Once, and for inbox.Forget
GRANT INSERT, SELECT, UPDATE ON duefleet_inbox TO consumer;
GRANT DELETE ON duefleet_inbox TO consumer;
