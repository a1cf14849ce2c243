#!/bin/sh
# Installs what building (build), testing (test: build too) and fuzzing (fuzz: test too) need, on Debian 12 or newer.
# Says nothing and touches nothing if all of it is there.
set -eu

build="build-essential meson ninja-build pkg-config libdnnl-dev libhwloc-dev libjansson-dev libncurses-dev libonig-dev libreadline-dev \
    libutf8proc-dev libxxhash-dev libzstd-dev"
test="$build libcmocka-dev libopenmpi-dev libvterm-dev openmpi-bin python3 strace tmux util-linux"
fuzz="$test clang libclang-rt-dev libomp-dev"

fail()
{
    echo "setup.sh: $1" >&2
    exit 1
}

case "${1:-build}" in
build) wanted=$build ;;
test) wanted=$test ;;
fuzz) wanted=$fuzz ;;
*) fail "unknown list '$1'; expected build, test or fuzz" ;;
esac

command -v dpkg-query >/dev/null || fail "this is no Debian; install by hand: a C compiler and the equivalents of: $wanted"

missing=""
for package in $wanted; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=absent
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    fail "these packages are missing, and only root may install them:$missing; run as root: apt-get install$missing"
fi

echo "setup.sh: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for command in "update" "install -y --no-install-recommends$missing"; do
    # shellcheck disable=SC2086
    if ! $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 $command >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        fail "'apt-get $command' failed (its last lines are above); fix that or install by hand:$missing"
    fi
done
