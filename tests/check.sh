#!/bin/sh
# Runs all suites, each to its end whatever became of the others, and says in a line how each ended:
#     tests/check.sh [--ci] [SUITE ...]
# A suite whose packages cannot be installed is skipped. With --ci that is a failure, and all that the
# suites say is shown.
set -u
cd "$(dirname "$0")/.."
ci=
[ "${1:-}" != --ci ] || { ci=1; shift; }
[ $# -gt 0 ] || set -- style types code slow documents browser cluster chaos
log="$(mktemp)"
trap 'rm -f "$log" "$log.status"' EXIT
lines= failed=0

# Installs what a suite needs beside .venv. The last line says what is missing.
prepare() {
    case $1 in browser | cluster) sh "tests/$1/install.sh" ;; esac
}

run() {
    case $1 in
        style | types) make --no-print-directory "$1" ;;
        chaos) make --no-print-directory chaos STRIKES=60 MINUTES=10 SEED=7 ;;
        *) make --no-print-directory "test-$1" ;;
    esac
}

# The counts of a suite that came to its end, else its last line.
counts() {
    grep -E ' in [0-9.]+s( |$)|strikes in|no issues found|^Contracts: ' "$log" | tail -n 1 | grep . || tail -n 1 "$log"
}

for suite in "$@"; do
    began=$(date +%s)
    if prepare "$suite" >"$log" 2>&1 </dev/null; then
        if [ -n "$ci" ]; then
            { run "$suite" 2>&1 </dev/null; echo $? >"$log.status"; } | tee "$log"
        else
            run "$suite" >"$log" 2>&1 </dev/null
            echo $? >"$log.status"
        fi
        result=FAILED
        [ "$(cat "$log.status")" != 0 ] || result=ok
        said="$(counts)"
        # Tests that all skip themselves have tested nothing.
        case $said in *[0-9]\ skipped*) case $said in *passed* | *failed* | *error*) ;; *) result=skipped ;; esac ;; esac
    else
        result=skipped said="$(tail -n 1 "$log")"
    fi
    [ "$result" != skipped ] || [ -z "$ci" ] || result=FAILED
    [ "$result" != FAILED ] || { failed=1; [ -n "$ci" ] || cat "$log"; }
    line="$(printf '%-10s %-8s %4d s  %s' "$suite" "$result" $(($(date +%s) - began)) "$said")"
    echo "$line"
    lines="$lines$line
"
done
[ $# = 1 ] || printf '\n%s' "$lines"
exit $failed
