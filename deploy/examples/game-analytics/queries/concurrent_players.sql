-- How many players were there at a time? Whoever reported anything within ten seconds was.
SELECT toDateTime(intDiv(ts, 10000) * 10) AS at, uniqExact(partition) AS players
FROM events FINAL
WHERE namespace = 'game'
GROUP BY at
ORDER BY at DESC
LIMIT 6
FORMAT PrettyCompactNoEscapes
