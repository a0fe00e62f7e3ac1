#!/bin/sh
# Installs a Slurm of one host for tests/cluster: Debian's packages, nothing is configured or started.
# Needs root and apt-get; says in one sentence what is missing.
set -eu
present() { for c in munged mungekey slurmctld slurmd sbatch srun squeue scontrol; do command -v "$c" >/dev/null 2>&1 || return 1; done; }
fail() { printf 'tests/cluster: %s\n' "$1" >&2; exit 1; }

present && exit 0
[ "$(id -u)" = 0 ] || fail "Slurm is not installed, and only root can install it (slurmctld slurmd slurm-client munge)."
command -v apt-get >/dev/null 2>&1 || fail "Slurm is not installed, and there is no apt-get to install it with."
packages="slurmctld slurmd slurm-client munge"
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; }
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
install >"$log" 2>&1 || { apt-get update -qq && install; } >>"$log" 2>&1 ||
    fail "Slurm could not be installed: $(tail -n 1 "$log")"
present || fail "Slurm was installed, but a program of it is missing."
