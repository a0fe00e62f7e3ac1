#!/bin/sh
# Runs a test file ten times in a row, the last five beside a busy loop on every core: what a test
# says may depend neither on draws nor on what else the machine does. Ends at the first failure.
set -eu
file=${1:-tests/unit/project/test_whole_runs.py}
said=$(mktemp)
busy=
trap 'kill $busy 2>/dev/null || true; rm -f "$said"' EXIT
for run in 1 2 3 4 5 6 7 8 9 10; do
    if [ "$run" = 6 ]; then
        for _ in $(seq "$(nproc)"); do
            while :; do :; done &
            busy="$busy $!"
        done
    fi
    .venv/bin/python -m pytest -q "$file" >"$said" 2>&1 || { cat "$said"; exit 1; }
    echo "run $run of $file${busy:+, all cores busy}: $(tail -n 1 "$said")"
done
