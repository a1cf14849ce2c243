#!/bin/sh
# Installs what the tests need, builds the program in three ways and runs the quick suite in each; `tests/run.sh long` runs the long suite as well.
# The last line of the output is the sum: N passed, N failed, N skipped.
set -eu
cd "$(dirname "$0")/.."
./setup.sh test
exec python3 tests/run.py "$@" </dev/null
