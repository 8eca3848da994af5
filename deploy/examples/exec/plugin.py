"""A plugin of the sink exec: that writes JSON events to the SQLite file argv[1], each once.

In the configuration: sink_command: ["/usr/bin/python3", "/opt/spillway/plugin.py", "/var/lib/events.db"]
"""
import json, os, sqlite3, sys

lines = sys.stdin.buffer.readlines()
if len(lines) != int(os.environ["BATCH_ENTRIES"]):
    sys.exit(75)  # stdin ends early when Spillway is killed: try again
rejected = []
with sqlite3.connect(sys.argv[1]) as db:  # one transaction; an error exits with 1, and the batch comes again
    db.execute("CREATE TABLE IF NOT EXISTS events (namespace, partition, seq INTEGER, ts INTEGER, data, PRIMARY KEY (namespace, partition, seq))")
    for i, entry in enumerate(map(json.loads, lines)):
        if "data" in entry:
            row = (entry["namespace"], entry["partition"], entry["seq"], entry["ts"], json.dumps(entry["data"]))
            db.execute("INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?)", row)
        else:  # a dead letter, with this reason
            rejected.append({"i": i, "result": "drop", "reason": "not_json"})
print(json.dumps({"results": rejected}))
