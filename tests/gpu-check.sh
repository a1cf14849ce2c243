#!/bin/sh
# What a machine without a GPU cannot know: our kernels against NVIDIA's own libraries, the speed, the lanes. At most five minutes.
#
#     tests/gpu-check.sh                 builds here and checks
#     tests/gpu-check.sh pack FILE       builds here and packs programs and libraries (a .tar.xz below 60 MB) for a machine that cannot build
#     tests/gpu-check.sh unpacked DIR    checks with what was unpacked there: no compiler, no network, nothing but python3, the driver and cuBLAS
#
# OUT=DIR says where tables, metrics and traces go (default: gpu-check.out). The last lines are the table.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build-gpu}
case "${1:-here}" in
here | pack)
    [ -d "$build" ] || meson setup "$build" "$top" --buildtype=release -Dgpu=enabled >&2
    ninja -C "$build" gpu-check >&2
    ;;
esac
case "${1:-here}" in
here) exec python3 "$top/tests/gpu/check.py" run --programs "$build" --out "${OUT:-gpu-check.out}" ;;
pack) exec python3 "$top/tests/gpu/check.py" pack --programs "$build" --file "$2" ;;
unpacked) exec python3 "$2/check.py" run --programs "$2" --out "${OUT:-gpu-check.out}" ;;
*)
    echo "gpu-check.sh: '$1' is not known; nothing, pack FILE or unpacked DIR" >&2
    exit 2
    ;;
esac
