#!/bin/sh
# Runs a Python script with transformers and PyTorch: run.sh SCRIPT [ARGS...]. Exit code 77 where they cannot be had.
set -eu
here=$(dirname "$(readlink -f "$0")")
skip() { printf 'skipped: %s\n' "$*"; exit 77; }
get="$here/../../third_party/test_packages.sh"
packages=$("$get") || skip 'no packages from PyPI'
torch=$("$get" "$here/torch.txt" --no-deps --no-compile) || skip 'no PyTorch from PyPI'
for tool in cc readelf; do command -v $tool > /dev/null || skip "no $tool, to make stubs of NVIDIA's libraries"; done
PYTHONPATH=$torch:$packages exec python3 "$@"
