#!/bin/sh
# Prints the folder of the Python package pyarrow, which holds Arrow C++ (include/ and libarrow.so.*), fetching
# it when it is not there. The plugin for Parquet files is built with it, and needs this very version where it
# runs.
#
#     pyarrow.sh [--installed]        --installed: fetch nothing; print an empty line if it is not there
#
# Looked for in this order:
#   1. TRAINCTL_PYARROW=DIR         the pyarrow folder of a Python installation
#   2. the cache                    $XDG_CACHE_HOME/trainctl/pyarrow-<version>
#   3. PyPI                         a pinned, hash-checked wheel
# Progress goes to stderr. Exit 5: it cannot be had, with the reason.
set -eu

VERSION=26.0.1
SHA256=39cb0f2418282c24bea6ceda77b03e5a8f0a5766b63a8bf194d4e2a2c423548c

say() { printf '%s\n' "$*" >&2; }
die() { say "pyarrow: $*"; exit 5; }

check_version() {  # DIR
  header=$1/include/arrow/util/config.h
  [ -f "$header" ] || die "$header does not exist: not the folder of the Python package pyarrow"
  found=$(sed -n 's/^#define ARROW_VERSION_STRING "\(.*\)"$/\1/p' "$header")
  [ "$found" = "$VERSION" ] || die "$1 is version ${found:-unknown}; this build needs $VERSION"
}

if [ -n "${TRAINCTL_PYARROW:-}" ]; then
  check_version "$TRAINCTL_PYARROW"
  printf '%s\n' "$TRAINCTL_PYARROW"
  exit 0
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/trainctl
target=$cache/pyarrow-$VERSION
if [ ! -d "$target" ] && [ "${1:-}" = --installed ]; then
  printf '\n'
  exit 0
fi
if [ ! -d "$target" ]; then
  [ "$(uname -m)" = x86_64 ] || die "the pinned wheel is for x86_64; set TRAINCTL_PYARROW=DIR to pyarrow $VERSION for $(uname -m)"
  mkdir -p "$cache"
  exec 9> "$cache/pyarrow.lock"
  flock 9
  if [ ! -d "$target" ]; then  # nobody else made it while we waited
    work=$(mktemp -d "$cache/pyarrow-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "pyarrow: fetching pyarrow $VERSION (55 MB) from PyPI"
    printf '%s --hash=sha256:%s\n' "pyarrow==$VERSION" $SHA256 > "$work/requirements.txt"
    # Arrow C++ is the same in the wheels for all versions of Python.
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
      --implementation cp --python-version 3.11 --abi cp311 --platform manylinux_2_28_x86_64 \
      -d "$work/wheels" -r "$work/requirements.txt" >&2 ||
      die "cannot download pyarrow $VERSION with pip; give the folder of an installed one with TRAINCTL_PYARROW=DIR"
    mkdir "$work/tree"
    python3 - "$work" <<'PY'
import glob, sys, zipfile
work = sys.argv[1]
with zipfile.ZipFile(glob.glob(work + "/wheels/*.whl")[0]) as archive:
    archive.extractall(work + "/tree", [n for n in archive.namelist() if not n.startswith("pyarrow/tests/")])
PY
    mv "$work/tree" "$target"
  fi
fi
check_version "$target/pyarrow"
printf '%s\n' "$target/pyarrow"
