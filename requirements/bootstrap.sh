#!/bin/sh
# Makes (or completes) the virtual environment .venv from a lock file:
#     requirements/bootstrap.sh run|dev|cuda12|cuda13|triton|slurm|s3
# Needs python3 (3.11 or later) and one of: uv, pip, the venv module.
set -eu
cd "$(dirname "$0")/.."
packages="requirements/$1.lock"
python="${PYTHON:-python3}"

fail() { printf 'bootstrap: %s\n' "$1" >&2; exit 1; }

command -v "$python" >/dev/null 2>&1 || fail "$python was not found; install Python 3.11 or later."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old; gpushmoo needs Python 3.11 or later (set PYTHON=/path/to/python3)."
# PoCL links every OpenCL kernel with the system's compiler driver and aborts without one.
command -v cc >/dev/null 2>&1 || fail "no C compiler (cc) was found; install gcc or clang: OpenCL kernels are linked with it."

# One at a time: a second one waits, and then finds what the first has made. The kernel frees the lock
# when its holder and all that it has started are gone. By Python, as not every system has a `flock`; on
# a file system that knows no locks there is none.
lock() {
    "$python" -c 'import fcntl, sys
try:
    fcntl.flock(9, fcntl.LOCK_EX | getattr(fcntl, sys.argv[1]))
except BlockingIOError:
    sys.exit(1)
except OSError:
    pass' "$1" 9>&9
}
exec 9>.bootstrap.lock
if ! lock LOCK_NB; then
    printf 'bootstrap: another one is making .venv; waiting for it.\n' >&2
    lock LOCK_EX
fi

uv="${UV:-}"
[ -n "$uv" ] || uv="$(command -v uv || true)"
if [ -z "$uv" ]; then
    uv=".uv/bin/uv"
    if [ ! -x "$uv" ]; then
        # The first that works: pip into a folder (allowed on Debian's managed Python), a venv's own pip.
        "$python" -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
            --require-hashes --target .uv -r requirements/uv.lock 2>.uv.log ||
            { rm -rf .uv && "$python" -m venv .uv >>.uv.log 2>&1 &&
              .uv/bin/python -m pip install --quiet --require-hashes -r requirements/uv.lock >>.uv.log 2>&1; } ||
            { rm -rf .uv; fail "uv could not be installed: this Python has neither a working pip nor venv, or the package index is out of reach (see .uv.log); on Debian: apt install python3-venv."; }
        rm -f .uv.log
    fi
fi

# What an ended bootstrap has left of an environment is completed: nobody else is at it.
[ -x .venv/bin/python ] ||
    "$uv" venv --quiet --allow-existing --no-python-downloads --python "$python" .venv
# install, not sync: an extra that the user added (CuPy, say) stays.
VIRTUAL_ENV="$PWD/.venv" "$uv" pip install --quiet --compile-bytecode --require-hashes -r "$packages"

# The command .venv/bin/gpushmoo; programs of that Python find the library of this clone. It names its
# interpreter by its own place, whatever characters that has.
site="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
printf "%s\n" "$PWD/workflow/scripts" >"$site/gpushmoo.pth"
cat >.venv/bin/gpushmoo <<'END'
#!/bin/sh
'''exec' "$(dirname "$(readlink -f "$0")")/python" "$0" "$@"
'''
import sys
from gpushmoo.__main__ import main
sys.exit(main())
END
chmod +x .venv/bin/gpushmoo

# The PoCL that pip ships knows no CPU younger than its compiler; such a machine gets Intel's runtime
# as well (under Intel's licence; it runs on AMD, too). GPUSHMOO_NO_INTEL=1 forbids it.
if [ -z "${GPUSHMOO_NO_INTEL:-}" ] && [ ! -e .venv/lib/libintelocl.so ] &&
    ! PYTHONPATH=workflow/scripts .venv/bin/python -m gpushmoo.devices.select opencl 0 pocl .venv/opencl-cache >/dev/null 2>.venv/pocl.log
then
    printf 'bootstrap: PoCL is not usable on this CPU (%s)\n' "$(tail -n 1 .venv/pocl.log)" >&2
    printf 'bootstrap: adding the Intel OpenCL runtime (Intel licence).\n' >&2
    VIRTUAL_ENV="$PWD/.venv" "$uv" pip install --quiet --compile-bytecode --require-hashes -r requirements/intel.lock
fi
touch ".venv/$1.stamp"
[ "$1" = run ] || touch .venv/run.stamp
