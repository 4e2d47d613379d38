#!/bin/sh
# What to run on a machine with a GPU: tests/gpu/run.sh [options of gpu_kit.py], or --help; docs/guide/kit.md has the rest.
# The Python with torch and transformers is TRAINCTL_PYTHON, else python3 (of the active environment).
set -eu
here=$(CDPATH='' cd -P -- "$(dirname -- "$0")" && pwd)
exec "${TRAINCTL_PYTHON:-python3}" "$here/gpu_kit.py" "$@"
