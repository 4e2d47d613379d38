#!/bin/sh
# Runs the benchmarks side by side with PyTorch: tests/bench/run.sh [options of bench.py], or --help.
# The Python with the peers is $TRAINCTL_BENCH_PYTHON, or a venv that is made once in the cache.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case " $* " in
  *" --help "* | *" -h "*) exec python3 "$here/bench.py" --help ;;
  *" --against"[\ =]*) exec python3 "$here/bench.py" "$@" ;;  # no peers
esac
python=${TRAINCTL_BENCH_PYTHON:-}
if [ -z "$python" ]; then
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/trainctl/bench-torch2.11.0-transformers4.57.6
  python=$venv/bin/python
  if [ ! -x "$python" ] || [ ! -e "$venv/complete-2" ]; then
    printf 'bench: installing PyTorch, transformers and nvidia-resiliency-ext from PyPI into %s\n' "$venv" >&2
    python3 -m venv "$venv" || { printf 'bench: python3 -m venv failed; apt-get install python3-venv\n' >&2; exit 5; }
    "$python" -m pip install --quiet --disable-pip-version-check \
      torch==2.11.0 transformers==4.57.6 numpy==2.4.6 safetensors==0.8.0 >&2 || exit 5
    "$python" -m pip install --quiet --disable-pip-version-check nvidia-resiliency-ext==0.4.1 >&2 ||
      printf 'bench: nvidia-resiliency-ext cannot be had here; no rows beside ft_launcher\n' >&2
    : > "$venv/complete-2"
  fi
fi
exec python3 "$here/bench.py" --python "$python" "$@"
