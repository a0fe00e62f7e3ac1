#!/bin/sh
# Builds wheel and sdist into dist/, checks their metadata, and tries the wheel in an environment, a HOME
# and an empty folder of its own.
set -eu
cd "$(dirname "$0")/.."
tried="$(mktemp -d)"
trap 'rm -rf "$tried"' EXIT
python="${PYTHON:-python3}"

"$python" -m venv "$tried/tools"
"$tried/tools/bin/pip" install --quiet build twine
rm -rf dist
"$tried/tools/bin/python" -m build
"$tried/tools/bin/twine" check --strict dist/*

"$python" -m venv "$tried/alone"
wheel="$(echo "$PWD"/dist/*.whl)"
"$tried/alone/bin/pip" install --quiet "$wheel"
mkdir "$tried/home" "$tried/empty"
export HOME="$tried/home" PATH="$tried/alone/bin:$PATH"
cd "$tried/empty"
# A CPU that is unknown to pip's PoCL gets Intel's runtime, as in bootstrap.sh.
python -m gpushmoo.devices.select opencl 0 pocl "$tried/cache" >/dev/null ||
    pip install --quiet "$wheel[intel]"
gpushmoo new mine
gpushmoo sweep kernels/mine --dtypes float --sizes 512
