#!/bin/sh
# Prints the folder of LibTorch 2.11 (with include/ and lib/), fetching it when it is not there.
#
# Looked for in this order:
#   1. TRAINCTL_LIBTORCH=DIR        a LibTorch, or the torch folder of a Python installation
#   2. --libtorch=python            the PyTorch that `python3` imports
#   3. the cache                    $XDG_CACHE_HOME/trainctl/libtorch-<version>
#   4. PyPI                         pinned, hash-checked wheels; lib/ and include/ alone are unpacked
# Progress goes to stderr. Exit 5: it cannot be had, with the reason.
set -eu

VERSION=2.11.0
SUPPORTED='2.11.*'
TORCH_SHA256=7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a
CUDART_VERSION=13.0.96
CUDART_SHA256=7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
CUPTI_VERSION=13.0.85
CUPTI_SHA256=4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8

say() { printf '%s\n' "$*" >&2; }
die() { say "libtorch: $*"; exit 5; }

check_version() {  # DIR
  [ -f "$1/lib/libtorch_cpu.so" ] || die "$1/lib/libtorch_cpu.so does not exist: not a LibTorch folder"
  header=$1/include/torch/headeronly/version.h
  [ -f "$header" ] || die "$header does not exist: the headers are missing, or this is not LibTorch $SUPPORTED"
  found=$(sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$header" | paste -sd.)
  case "$found" in
    $SUPPORTED) ;;
    *) [ "${TRAINCTL_LIBTORCH_ANY_VERSION:-}" = 1 ] || die "$1 is version ${found:-unknown}; this build supports $SUPPORTED (TRAINCTL_LIBTORCH_ANY_VERSION=1 tries it all the same)" ;;
  esac
}

fetch() {  # NAME==VERSION SHA256
  printf '%s --hash=sha256:%s\n' "$1" "$2" > "$work/requirements.txt"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --implementation cp --python-version 3.11 --abi cp311 --abi none \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux2014_x86_64 \
    --platform manylinux_2_17_x86_64 -d "$work/wheels" -r "$work/requirements.txt" >&2 ||
    die "cannot download $1 with pip; give a LibTorch of your own with TRAINCTL_LIBTORCH=DIR"
}

if [ -n "${TRAINCTL_LIBTORCH:-}" ]; then
  check_version "$TRAINCTL_LIBTORCH"
  printf '%s\n' "$TRAINCTL_LIBTORCH"
  exit 0
fi
if [ "${1:-}" = --libtorch=python ]; then
  dir=$(python3 -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin))' 2>/dev/null) ||
    die "python3 has no torch; leave out --libtorch=python to fetch the pinned one"
  check_version "$dir"
  printf '%s\n' "$dir"
  exit 0
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/trainctl
target=$cache/libtorch-$VERSION
if [ ! -d "$target" ]; then
  [ "$(uname -m)" = x86_64 ] || die "the pinned wheel is for x86_64; set TRAINCTL_LIBTORCH=DIR to a LibTorch for $(uname -m)"
  mkdir -p "$cache"
  exec 9> "$cache/libtorch.lock"
  flock 9
  if [ ! -d "$target" ]; then  # nobody else made it while we waited
    work=$(mktemp -d "$cache/libtorch-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "libtorch: fetching torch $VERSION (531 MB) from PyPI"
    fetch "torch==$VERSION" $TORCH_SHA256
    fetch "nvidia-cuda-runtime==$CUDART_VERSION" $CUDART_SHA256
    fetch "nvidia-cuda-cupti==$CUPTI_VERSION" $CUPTI_SHA256
    mkdir "$work/tree"
    python3 - "$work" <<'PY'
import glob, sys, zipfile
work = sys.argv[1]
for wheel in glob.glob(work + "/wheels/*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.startswith(("torch/lib/", "torch/include/", "nvidia/cu13/lib/"))
                 and "libtorch_python" not in n]
        archive.extractall(work + "/tree", names)
PY
    mv "$work/tree" "$target"
  fi
fi
check_version "$target/torch"
printf '%s\n' "$target/torch"
