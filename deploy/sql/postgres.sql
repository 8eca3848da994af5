-- The table of the sink postgres://user@host/DATABASE?table=events.
--
-- Each entry once: the sink inserts ON CONFLICT (namespace, partition, seq) DO NOTHING, so the primary
-- key, or a unique index on the same columns, is required. A table partitioned by time cannot have it;
-- one partitioned by hash of the namespace or the partition can.
--
-- The sink reads the types of ts and data here:
--     ts    timestamptz, or bigint for Unix ms
--     data  jsonb: what is not JSON, \u0000, lone surrogates and numbers like 1e999999 become dead letters
--           json:  what is not JSON becomes dead letters; text as sent
--           text:  what is not UTF-8 and what has a NUL become dead letters
--           bytea: takes every payload, byte for byte
--
-- The user needs: GRANT INSERT, SELECT ON events, and TEMPORARY on the database, which all have by default.
CREATE TABLE events
(
    namespace text        NOT NULL,
    partition text        NOT NULL,
    seq       bigint      NOT NULL, -- unique and rising within a partition
    ts        timestamptz NOT NULL, -- when the event occurred
    id        text,                 -- the client's id, NULL where it gave none
    data      jsonb       NOT NULL, -- the payload
    PRIMARY KEY (namespace, partition, seq)
);
