#!/usr/bin/env bash
# Build the native module with -fsanitize=address,undefined in an environment of its own and run its tests.
# Any finding ends the run with a non-zero status.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/sanitize-venv
tests=(tests/native tests/executors)

python=$(scripts/check_machine.sh "${PYTHON:-.venv/bin/python}")
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check -q)
"${pip[@]}" install --upgrade "pip>=25.1"
"${pip[@]}" install --group test
"${pip[@]}" install --force-reinstall --no-deps . \
    -C cmake.define.PACELINE_SANITIZE=ON -C build-dir=build/sanitize
"${pip[@]}" install .

# Python itself is not built with the sanitizers, so their runtime is loaded first. Leaks are left out: the
# interpreter keeps memory until it ends.
compiler=${CXX:-c++}
runtime="$("$compiler" -print-file-name=libasan.so):$("$compiler" -print-file-name=libubsan.so)"
export ASAN_OPTIONS=detect_leaks=0:halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
existing=()
for path in "${tests[@]}"; do [ -d "$path" ] && existing+=("$path"); done
LD_PRELOAD="$runtime" PYTHONMALLOC=malloc "$venv/bin/python" -m pytest -p no:cacheprovider -m "not reference" "${existing[@]}"
