#!/bin/sh
# Runs after the files of a .deb or .rpm are in place. It makes the user, and neither
# enables nor starts the service: it has no configuration of yours yet.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers spillway.conf
fi
if command -v systemd-tmpfiles >/dev/null; then
	systemd-tmpfiles --create spillway.conf
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# After an upgrade the new program runs; a service that was stopped stays so.
	systemctl try-restart spillway.service || echo "spillway does not start: systemctl status spillway" >&2
fi
