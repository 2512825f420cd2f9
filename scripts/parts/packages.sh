# Debian packages that the tests need; nothing is done when they are there. Run as root.
set -euo pipefail
wanted=(slurm-wlm munge slurmdbd mariadb-server debootstrap squashfs-tools squashfuse fuse2fs fuse-overlayfs uidmap fakeroot patchelf sudo openssh-server
    python3-venv environment-modules postgresql docker.io docker-registry iproute2 tini git curl g++ make python3-dev
    chromium fonts-dejavu-core
    debian-archive-keyring ca-certificates)
missing=()
for package in "${wanted[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ "${#missing[@]}" = 0 ] && exit 0
echo "Installing ${missing[*]} ..." >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# Services are not started: the tests start their own.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d
trap 'rm -f /usr/sbin/policy-rc.d' EXIT
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
