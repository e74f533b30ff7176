#!/usr/bin/env bash
# Installs the host packages that the testbed lacks. Needs no rights when nothing is missing.
# For Debian 12, Debian 13 and Ubuntu 24.04 on x86-64.
#
#   lab/packages.sh           install what is missing
#   lab/packages.sh --list    print what is missing, one package a line, and install nothing
#   lab/packages.sh --without-lab    only what a controller of real hardware needs, on any processor
set -euo pipefail

# PYTHON: the interpreter of the virtual environment.
python=${PYTHON:-python3}

# gcc, libc6-dev and libssl-dev build the cipher loop of the virtual drive (drive/xts.c).
packages=(
    ca-certificates
    debian-archive-keyring
    e2fsprogs
    gcc
    iproute2
    libc6-dev
    libssl-dev
    make
    mmdebstrap
    openssh-client
    qemu-system-x86
    qemu-utils
    uidmap
    util-linux
)
# To build the kernel of User Mode Linux rather than take that of lab/kernel/ (lab/machines/kernel.py).
[ "${LAB_KERNEL:-}" != build ] || packages+=(bc bison flex kmod patch xz-utils)

without_lab=false
if [ "${1:-}" = --without-lab ]; then
    without_lab=true
    packages=(ca-certificates openssh-client)
    shift
fi

refuse() {
    echo "fde: $*" >&2
    exit 1
}

installed() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing() {
    local package
    for package in "${packages[@]}"; do
        installed "$package" || echo "$package"
    done
    # ensurepip is split off by Debian; a Python from elsewhere brings its own.
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
}

as_root=()
need_rights() {
    [ "$(id -u)" -eq 0 ] && return
    command -v sudo >/dev/null ||
        refuse "these packages are missing and need root to install: $*; there is no sudo here, so ask an administrator to run: apt-get install $*"
    sudo -v ||
        refuse "sudo was refused, but these packages are missing: $*; ask an administrator to run: apt-get install $*"
    as_root=(sudo)
}

# Print a command's output only if it fails: dpkg has several lines for each package.
quietly() {
    local output
    output=$("$@" 2>&1) && return
    [ -z "$output" ] || echo "$output" >&2
    return 1
}

main() {
    local machine list
    machine=$(uname -m)
    $without_lab || [ "$machine" = x86_64 ] ||
        refuse "the virtual lab runs on x86-64 only, and this machine is $machine; use INVENTORY=... to point the testbed at real hardware"
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        refuse "there is no apt-get here; install by hand what these Debian packages hold, then go on with the single make targets: ${packages[*]}"
    fi

    if [ "${1:-}" = --list ]; then
        missing
        return
    fi
    mapfile -t list < <(missing)
    if [ "${#list[@]}" -eq 0 ]; then
        echo "packages: all there"
        return
    fi

    echo "packages: installing ${list[*]}"
    need_rights "${list[@]}"
    quietly "${as_root[@]}" apt-get -qq update ||
        refuse "apt-get update failed; see its messages above, correct the package sources and try again"
    quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y install --no-install-recommends "${list[@]}" ||
        refuse "apt-get could not install ${list[*]}; see its messages above and try again"
}

main "$@"
