#!/bin/sh
# Does a change alter any plan? tests/tools/same_plans.sh OLD [NEW], or --help.
set -eu
here=$(CDPATH='' cd -P -- "$(dirname -- "$0")" && pwd)
exec python3 "$here/same_plans.py" "$@"
