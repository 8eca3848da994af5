# Sourced by the deps scripts of this folder.

# apt_install PACKAGE... installs with apt-get, as root or by a sudo that asks for no
# password. It fails where that is not allowed or not possible.
apt_install() (
	command -v apt-get >/dev/null || exit 1
	as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null && sudo -n true 2>/dev/null || exit 1
		as_root=(sudo -n)
	fi

	# Debian starts a daemon it installs. Nobody asked for one, so a policy forbids
	# it for the moment, unless the machine has a policy of its own.
	policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
	if [ ! -e "$policy" ]; then
		trap '${as_root[@]+"${as_root[@]}"} rm -f "$policy"' EXIT
		printf '#!/bin/sh\nexit 101\n' | ${as_root[@]+"${as_root[@]}"} tee "$policy" >/dev/null || exit 1
		${as_root[@]+"${as_root[@]}"} chmod +x "$policy" || exit 1
	fi

	echo "Installing $* with apt-get." >&2
	install() {
		${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y --no-install-recommends "$@" >&2
	}
	# A fresh machine or container has no package lists yet.
	install "$@" || { ${as_root[@]+"${as_root[@]}"} apt-get update >&2 && install "$@"; }
)
