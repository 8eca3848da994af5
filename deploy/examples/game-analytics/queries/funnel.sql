-- How many players came how far? Each step within an hour of the one before.
SELECT ['nothing', 'opened the game', 'began a level', 'completed one', 'completed the second'][reached + 1] AS furthest, count() AS players
FROM
(
    SELECT partition, windowFunnel(3600)(toDateTime(intDiv(ts, 1000)),
        event = 'session_start',
        event = 'level_start',
        event = 'level_complete',
        event = 'level_complete' AND visitParamExtractUInt(data, 'level') = 2) AS reached
    FROM (SELECT partition, ts, data, visitParamExtractString(data, 'event') AS event FROM events FINAL WHERE namespace = 'game')
    GROUP BY partition
)
GROUP BY reached
ORDER BY reached
FORMAT PrettyCompactNoEscapes
