#!/bin/sh
# nvcc.sh LOG NVCC ARGUMENT...: compiles, and keeps what ptxas says of each kernel (registers, shared memory, spills), for tests/kernels/test_ptxas.py.
log=$1 nvcc=$2
shift 2
"$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/version \1/p' >"$log"
if ! "$nvcc" -Xptxas -v "$@" 2>>"$log"; then
    cat "$log" >&2
    exit 1
fi
