#!/bin/sh
# with_report.sh FILE COMMAND...: what the command says goes to FILE; where it fails, to stderr as well.
report=$1
shift
"$@" > "$report" 2>&1 && exit 0
code=$?
cat "$report" >&2
exit $code
