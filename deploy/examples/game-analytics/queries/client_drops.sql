-- What did the clients themselves throw away, and why? (What Spillway dropped is in its ledger.)
SELECT
    visitParamExtractString(data, 'reason') AS reason,
    sum(visitParamExtractUInt(data, 'n')) AS events,
    uniqExact(partition) AS players
FROM events FINAL
WHERE namespace = 'game' AND visitParamExtractString(data, 'event') = 'client_dropped'
GROUP BY reason
ORDER BY events DESC
FORMAT PrettyCompactNoEscapes
