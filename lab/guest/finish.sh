#!/bin/sh
# Runs inside the new root, from a directory that the build put there: builds the kernel module and the
# workloads' assets, then removes everything that only the build needed.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
ingredients=$(dirname "$0")
assets=/usr/share/fde-testbed
source_name=linux-source-6.12

step() { echo "image: $*" >&2; }
lines() { grep -v '^#' "$ingredients/$1"; }

step "kernel module"
kver=$(basename /lib/modules/*-amd64)
make -s -C "$ingredients" KVER="$kver" install
depmod "$kver"

step "assets"
mkdir -p "$assets" /tmp/assets
tar -xJf "/usr/src/$source_name.tar.xz" -C /tmp/assets \
    "$source_name/crypto" "$source_name/kernel" "$source_name/net"
pack() { # archive, directories
    archive=$1
    shift
    tar -C /tmp/assets --sort=name --owner=0 --group=0 --numeric-owner -cf - "$@" |
        gzip -6 -n >"$assets/$archive"
}
pack kernel_tree.tar.gz "$source_name/crypto" "$source_name/kernel"
pack kernel_grep.tar.gz "$source_name/net"
ffmpeg -nostdin -loglevel error -bitexact -f lavfi -i testsrc2=size=320x240:rate=25 \
    -f lavfi -i sine=frequency=440:sample_rate=44100 -t 10 \
    -c:v mpeg1video -b:v 1M -c:a mp2 -b:a 128k -f mpeg "$assets/clip.mpg"
rm -rf /tmp/assets
(cd "$assets" && sha256sum ./*.gz ./*.mpg >SHA256SUMS)

step "units"
lines masked-units.txt | xargs systemctl --quiet mask
systemctl --quiet enable ssh.service fde-host.service fde-network.service fde-lab-drives.service
systemctl --quiet disable ssh.socket 2>/dev/null || true
systemctl --quiet set-default multi-user.target

step "removing build packages"
lines build-packages.txt |
    xargs apt-get -qq -y -o APT::AutoRemove::RecommendsImportant=false purge --autoremove >/dev/null
rm -f /etc/ssh/ssh_host_* /etc/apt/apt.conf.d/99mmdebstrap
rm -rf /var/lib/mysql/* /var/log/*.log /var/log/apt /var/cache/apt/*.bin
# The guest must not depend on the build host's mirror.
echo 'deb http://deb.debian.org/debian trixie main' >/etc/apt/sources.list
rm -f /etc/apt/sources.list.d/*
[ -f "/lib/modules/$kver/extra/fde_rapl_sim.ko" ]
for program in cryptsetup dmsetup fio mariadbd mplayer nvme python3 sfdisk smartctl sysbench mkfs.ext4; do
    command -v "$program" >/dev/null || { echo "image: $program is missing" >&2; exit 1; }
done
rm -r "$ingredients"
# Newer than /usr, so that systemd-update-done and the like have nothing to do at boot.
touch /etc/.updated /var/.updated
