#!/bin/sh
# Writes the lock files from pyproject.toml and uv.in: versions and hashes, never an address.
set -eu
cd "$(dirname "$0")/.."
uv="${UV:-$(command -v uv || echo .uv/bin/uv)}"
compile() { "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate "$@"; }
compile pyproject.toml --extra workflow -o requirements/run.lock
compile pyproject.toml --extra workflow --extra dev -c requirements/run.lock -o requirements/dev.lock
compile pyproject.toml --extra workflow --extra intel -c requirements/run.lock -o requirements/intel.lock
compile pyproject.toml --extra workflow --extra cuda12 -c requirements/run.lock -o requirements/cuda12.lock
compile pyproject.toml --extra workflow --extra cuda13 -c requirements/run.lock -o requirements/cuda13.lock
compile pyproject.toml --extra workflow --extra triton -c requirements/run.lock -o requirements/triton.lock
compile pyproject.toml --extra workflow --extra slurm -c requirements/run.lock -o requirements/slurm.lock
versions="$(mktemp)"
sed -n '/^python-dateutil==/d; s/^\([a-z].*==.*[^ ]\) *\\$/\1/p' requirements/run.lock >"$versions"
compile pyproject.toml --extra workflow requirements/s3.in -c "$versions" -o requirements/s3.lock
rm "$versions"
compile requirements/uv.in -o requirements/uv.lock
