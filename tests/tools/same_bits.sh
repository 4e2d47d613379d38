#!/bin/sh
# Does a change alter any bit of what is trained? tests/tools/same_bits.sh OLD [NEW], or --help.
set -eu
here=$(CDPATH='' cd -P -- "$(dirname -- "$0")" && pwd)
exec python3 "$here/same_bits.py" "$@"
