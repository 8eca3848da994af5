-- The table of the sink clickhouse://host:8123/DATABASE?table=events, for servers from 18.16 on.
--
-- Each entry once: after a crash or a lost answer an entry is inserted again. The key tells it, so
-- SELECT … FINAL counts it once at any time, and merges remove the second row. A repeat has the same
-- ts, so it is in the same month as the first. Without FINAL, count with uniqExact(namespace, partition, seq).
-- On a cluster: ReplicatedReplacingMergeTree.
--
-- Further columns are computed from data, such as on today's servers
--     kind String MATERIALIZED JSONExtractString(data, 'type')
-- or with a materialized view. An expression that fails on a row rejects the row: a dead letter.
-- Newer servers have times in ms: time DateTime64(3) MATERIALIZED fromUnixTimestamp64Milli(ts)
CREATE TABLE events
(
    namespace String,
    partition String,
    seq       Int64,    -- unique and rising within a partition
    ts        Int64,    -- when the event occurred, Unix ms
    id        String,   -- the client's id, '' where it gave none
    data      String,   -- the payload, byte for byte
    time      DateTime MATERIALIZED toDateTime(intDiv(ts, 1000))
)
ENGINE = ReplacingMergeTree()
PARTITION BY toYYYYMM(time)
ORDER BY (namespace, partition, seq)
