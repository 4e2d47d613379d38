#!/bin/sh
# Runs a Python script that needs the PyPI packages `tokenizers` and `sentencepiece`: run.sh SCRIPT [ARGS...]. The Python
# with them is $TRAINCTL_TOKENIZER_PYTHON, or a venv that is made once in the cache. Where they cannot be had: exit code 77.
set -eu
python=${TRAINCTL_TOKENIZER_PYTHON:-}
if [ -z "$python" ]; then
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/trainctl/tokenizers0.23.3-sentencepiece0.2.3
  python=$venv/bin/python
  if [ ! -e "$venv/complete" ]; then
    python3 -m venv "$venv" || { printf 'skipped: python3 -m venv failed; apt-get install python3-venv\n'; exit 77; }
    "$python" -m pip install --quiet --disable-pip-version-check tokenizers==0.23.3 sentencepiece==0.2.3 >&2 ||
      { printf 'skipped: pip cannot install tokenizers and sentencepiece\n'; exit 77; }
    : > "$venv/complete"
  fi
fi
exec "$python" "$@"
