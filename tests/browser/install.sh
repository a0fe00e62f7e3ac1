#!/bin/sh
# Installs Chromium for tests/browser: Debian's package, as root. Says in one sentence what is missing.
set -eu
present() { command -v chromium >/dev/null 2>&1; }
fail() { printf 'tests/browser: %s\n' "$1" >&2; exit 1; }

present && exit 0
[ "$(id -u)" = 0 ] || fail "Chromium is not installed, and only root can install it (chromium)."
command -v apt-get >/dev/null 2>&1 || fail "Chromium is not installed, and there is no apt-get to install it with."
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
install >"$log" 2>&1 || { apt-get update -qq && install; } >>"$log" 2>&1 ||
    fail "Chromium could not be installed: $(tail -n 1 "$log")"
present || fail "Chromium was installed, but there is no program of that name."
