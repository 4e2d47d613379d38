#!/bin/sh
# Runs a Python script with the packages of tests/requirements.txt: run.sh SCRIPT [ARGS...]. Exit code 77 where they
# cannot be had.
set -eu
here=$(dirname "$(readlink -f "$0")")
packages=$("$here/../../third_party/test_packages.sh") || { printf 'skipped: no packages from PyPI\n'; exit 77; }
PYTHONPATH=$packages exec python3 "$@"
