#!/bin/sh
# Tells the programs of this bundle which LibTorch to load, by the link `libtorch` beside this file; once for
# each place that the bundle is unpacked in.
#
#   ./setup                          the PyTorch of python3 (of the active environment, if there is one)
#   ./setup DIR                      that folder: torch of a Python installation, or a LibTorch
#   TRAINCTL_LIBTORCH=DIR ./setup    the same
#   TRAINCTL_PYTHON=PYTHON ./setup   the PyTorch of that Python
#
# Needs nothing but a shell, ln, and python3 where no folder is given. Exit 2: the command line; 5: no LibTorch
# that the programs start with, with the reason.
set -eu

say() { printf 'setup: %s\n' "$*" >&2; }

case $0 in
  */*) here=${0%/*} ;;
  *) here=. ;;
esac
here=$(CDPATH='' cd -P -- "$here" && pwd)
[ $# -le 1 ] || { say "usage: ./setup [DIR]"; exit 2; }
case ${1:-} in
  -*) say "usage: ./setup [DIR], with DIR the torch folder of a Python installation or a LibTorch"; exit 2 ;;
esac

dir=${1:-${TRAINCTL_LIBTORCH:-}}
if [ -z "$dir" ]; then
  python=${TRAINCTL_PYTHON:-python3}
  # Found without importing it: that takes seconds, and touches the GPU's driver.
  dir=$("$python" -c 'import importlib.util
found = importlib.util.find_spec("torch")
print(next(iter(found.submodule_search_locations or []), "") if found else "")') || { say "$python does not run: give the torch folder, ./setup DIR"; exit 5; }
  [ -n "$dir" ] || { say "$python has no torch: activate the environment that has it, or give its folder, ./setup DIR"; exit 5; }
fi
# LibTorch looks for CUDA's libraries beside itself, so the link has its real place.
real=$(CDPATH='' cd -P -- "$dir" 2>/dev/null && pwd) || { say "there is no folder $dir"; exit 5; }
dir=$real
[ -e "$dir/lib/libtorch_cpu.so" ] || { say "$dir has no lib/libtorch_cpu.so: not a torch folder"; exit 5; }
if [ -e "$here/libtorch" ] && [ ! -L "$here/libtorch" ]; then
  say "$here/libtorch is not a link of ours: remove it"
  exit 5
fi
ln -sfn -- "$dir" "$here/libtorch" || { say "cannot make the link $here/libtorch"; exit 5; }
if ! started=$("$here/bin/trainctl-worker" version 2>&1); then
  say "with $dir the worker does not start:"
  printf '%s\n' "$started" >&2
  exit 5
fi
printf '%s: the worker %s\n' "$dir" "$started"
