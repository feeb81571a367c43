#!/usr/bin/env bash
# Build the native module with -fsanitize=address,undefined in an environment of its own and run its tests.
# Any finding ends the run with a non-zero status. Takes 6.5 minutes of processor time.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/sanitize-venv
tests=(tests/native tests/executors tests/sampling)

python=$(scripts/check_machine.sh "${PYTHON:-.venv/bin/python}")
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check -q)
"${pip[@]}" install --upgrade "pip>=25.1"
"${pip[@]}" install --group test
"${pip[@]}" install . -C cmake.define.PACELINE_SANITIZE=ON -C build-dir=build/sanitize

# Python itself is not built with the sanitizers, so their runtime is loaded first, and the C++ library with it:
# the runtime looks for the function that throws exceptions once, at the start. Leaks are left out: the
# interpreter keeps memory until it ends.
compiler=${CXX:-c++}
runtime=
for library in libasan.so libubsan.so libstdc++.so; do
    runtime+="$("$compiler" -print-file-name="$library"):"
done
export ASAN_OPTIONS=detect_leaks=0:halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
sanitized=("$venv/bin/python" -P)
PYTHONMALLOC=malloc LD_PRELOAD="$runtime" "${sanitized[@]}" - <<'CHECK'
from pathlib import Path
from paceline.native import _core
if b"__asan_init" not in Path(_core.__file__).read_bytes():
    raise SystemExit(f"{_core.__file__} was built without sanitizers")
CHECK
# CXXFLAGS: tests/native compiles a program of its own.
CXXFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -g" PYTHONMALLOC=malloc LD_PRELOAD="$runtime" \
    "${sanitized[@]}" -m pytest -p no:cacheprovider -m "not reference" "${tests[@]}"
