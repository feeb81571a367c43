#!/bin/sh
# Is everything here that cannot come from PyPI? Prints the Python to use, or says what to install and how.
# Usage: check_machine.sh [PYTHON]
set -u

how_to_install() {  # Debian names, Fedora names, Homebrew names
    if command -v apt-get >/dev/null 2>&1; then echo "    sudo apt-get update && sudo apt-get install -y $1"
    elif command -v dnf >/dev/null 2>&1; then echo "    sudo dnf install -y $2"
    elif command -v brew >/dev/null 2>&1; then echo "    brew install $3"
    else
        echo "    Debian, Ubuntu:  sudo apt-get update && sudo apt-get install -y $1"
        echo "    Fedora, RHEL:    sudo dnf install -y $2"
        echo "    macOS:           brew install $3"
    fi
}

missing() {  # what, Debian names, Fedora names, Homebrew names
    {
        echo "paceline: $1"
        echo "Install it with"
        how_to_install "$2" "$3" "$4"
    } >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

python=
for candidate in "${1:-}" python3 python3.13 python3.12 python3.11 python3.14 python; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate" || continue
    python=$("$candidate" -c 'import sys; print(sys.executable)')
    break
done
[ -n "$python" ] || missing "no Python 3.11 or newer was found (looked for python3 and python3.11 to 3.14)." \
    "python3 python3-venv python3-dev" "python3 python3-devel" "python@3.12"

"$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
    missing "$python cannot make virtual environments (module venv or ensurepip is missing)." \
        "python3-venv" "python3" "python@3.12"

header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include") + "/Python.h")')
[ -f "$header" ] ||
    missing "the headers of $python are missing ($header)." "python3-dev" "python3-devel" "python@3.12"

compiler=
for candidate in "${CXX:-}" c++ g++ clang++; do
    [ -n "$candidate" ] && command -v "${candidate%% *}" >/dev/null 2>&1 || continue
    compiler=$candidate
    break
done
[ -n "$compiler" ] || missing "no C++ compiler was found (looked for \$CXX, c++, g++ and clang++)." \
    "g++" "gcc-c++" "llvm   # or: xcode-select --install"

probe=$(mktemp -d) || exit 1
trap 'rm -rf "$probe"' EXIT
cat > "$probe/probe.cpp" <<'CPP'
#include <atomic>
#include <span>
template <typename T> concept Number = requires(T x) { x + x; };
int main() {
    std::atomic<int> value{1};
    value.notify_all();
    int numbers[2] = {0, 0};
    return static_cast<int>(std::span(numbers).size()) - 2 * value.load();
}
CPP
$compiler -std=c++20 "$probe/probe.cpp" -o "$probe/probe" 2>"$probe/log" || {
    cat "$probe/log" >&2
    missing "$compiler cannot build a C++20 program (see above): GCC 11, Clang 14 or newer is needed." \
        "g++" "gcc-c++" "llvm   # or: xcode-select --install"
}
echo "$python"
