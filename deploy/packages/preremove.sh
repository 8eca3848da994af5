#!/bin/sh
# Runs before a .deb or .rpm is removed. An upgrade calls it, too, with "upgrade" (Debian)
# or 1 (rpm), and must leave the service alone.
set -e
case $1 in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now spillway.service
	fi
	;;
esac
