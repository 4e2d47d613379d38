#!/bin/sh
# Prints a folder for PYTHONPATH that has the packages of tests/requirements.txt, installing them there from PyPI
# when they are not: $XDG_CACHE_HOME/trainctl/test-packages-<python>-<checksum of that file>. Nothing else of the
# machine is changed. Progress goes to stderr. Exit 5: they cannot be had.
#
#     test_packages.sh [REQUIREMENTS [PIP_OPTION...]]
set -eu

die() { printf '%s\n' "test packages: $*" >&2; exit 5; }

requirements=${1:-$(dirname "$(readlink -f "$0")")/../tests/requirements.txt}
[ $# -eq 0 ] || shift
python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trainctl
target=$cache/test-packages-$python-$(sha256sum "$requirements" | cut -c1-12)
if [ ! -d "$target" ]; then
  mkdir -p "$cache"
  exec 9> "$cache/test-packages.lock"
  flock 9
fi
if [ ! -d "$target" ]; then
  work=$(mktemp -d "$cache/test-packages.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  python3 -m pip install --quiet --disable-pip-version-check --only-binary=:all: --target "$work/packages" \
    "$@" -r "$requirements" >&2 || die "pip cannot install what $requirements names"
  mv "$work/packages" "$target"
fi
printf '%s\n' "$target"
