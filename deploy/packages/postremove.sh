#!/bin/sh
# Runs after a .deb or .rpm was removed. The user, the configuration and
# /var/lib/spillway stay: there may be entries in it.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
