"""Compile ``kernel_check.cpp`` with the compilers at hand and run it: here, and for Arm under an emulator.

The Python tests hold the same kernels to the same numbers on this machine; this one adds the extremes at
which 16-bit sums would overflow, and the only proof we have of the path with NEON dot products.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "src/paceline/native"
COMMON = ("kernel_check.cpp", "blocks.cpp", "weights.cpp", "kernel_table.cpp")
# What CMakeLists.txt says, but for the optimisation: compiling should be quick, and no result depends on it.
FLAGS = (
    "-std=c++20",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
    "-fno-math-errno",
    f"-I{NATIVE}",
)
ARM = {"armv8": (), "armv8.2 with dot products": ("-march=armv8.2-a+dotprod",)}


def _path_flags(path: str) -> list[str]:
    """Return the flags CMakeLists.txt gives an instruction path."""
    text = (ROOT / "CMakeLists.txt").read_text()
    found = re.search(rf"set\(PACELINE_FLAGS_{path} ([^)]*)\)", text)
    assert found, f"CMakeLists.txt has no flags for {path}"
    return re.sub(
        r"\$\{PACELINE_FLAGS_(\w+)\}", lambda name: " ".join(_path_flags(name[1])), found[1]
    ).split()


def _with_amx(compiler: str) -> tuple[str, ...]:
    """Return the path with tile registers where the compiler knows them, as CMakeLists.txt asks it."""
    command = [compiler, *_path_flags("amx"), "-x", "c++", "-fsyntax-only", os.devnull]
    probe = subprocess.run(command, env=_environment(), check=False)
    return ("amx",) if probe.returncode == 0 and platform.system() == "Linux" else ()


def _environment() -> dict[str, str]:
    """Return the environment without sanitizers' preloaded libraries, which are not for compilers."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def _call(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _build(compiler: str, folder: Path, paths: tuple[str, ...], *flags: str) -> Path:
    objects: list[Path] = []
    for path in paths:
        source = NATIVE / f"kernels_{path}.cpp"
        objects.append(folder / f"{path}.o")
        _call(compiler, *FLAGS, *_path_flags(path), *flags, "-c", source, "-o", objects[-1])
    if "amx" in paths:
        flags = (*flags, "-DPACELINE_AMX_PATH")
    sources = [Path(__file__).with_name(name) if "check" in name else NATIVE / name for name in COMMON]
    program = folder / "kernel_check"
    _call(compiler, *FLAGS, *flags, *sources, *objects, "-o", program)
    return program


def _expect_agreement(printed: str, paths: tuple[str, ...]) -> None:
    lines = printed.splitlines()
    assert [line.split(":")[0] for line in lines] == list(paths), printed
    for line in lines:
        assert line.endswith(("all kernels agree with plain C++", "not available on this processor")), printed
    assert "agree" in printed


def test_kernels_agree_with_plain_cpp_here(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    x86 = platform.machine() in ("x86_64", "AMD64")
    paths = ("portable", "avx2", "avx512", *_with_amx(compiler)) if x86 else ("portable",)
    flags = os.environ.get("CXXFLAGS", "").split()  # `make sanitize` sets them
    _expect_agreement(_call(_build(compiler, tmp_path, paths, *flags), *paths), paths)


@pytest.mark.parametrize("machine", ARM)
def test_kernels_agree_with_plain_cpp_on_emulated_arm(tmp_path: Path, machine: str) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs a cross compiler and an emulator: apt-get install g++-aarch64-linux-gnu qemu-user")
    program = _build(compiler, tmp_path, ("portable",), "-static", *ARM[machine])
    _expect_agreement(_call(emulator, program, "portable"), ("portable",))
