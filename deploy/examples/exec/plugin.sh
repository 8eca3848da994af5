#!/bin/sh
# A plugin of the sink exec: that makes one file a batch in the folder $1. A batch that
# comes again replaces its file. In the configuration:
#   sink_command: ["/bin/sh", "/opt/spillway/plugin.sh", "/var/lib/batches"]
set -eu
name=$1/$BATCH_FIRST_SEQ-$BATCH_ID
part=$name.$$.part
trap 'rm -f "$part"' EXIT
cat >"$part"
# stdin ends early when Spillway is killed: try again (75 is EX_TEMPFAIL).
[ "$(wc -l <"$part")" -eq "$BATCH_ENTRIES" ] || exit 75
mv "$part" "$name.ndjson"
