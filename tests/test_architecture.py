"""The shape of the code is a promise too: who imports whom, what an import costs, how long things get."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "paceline"
MODULES = sorted(PACKAGE.rglob("*.py"))

BASE = frozenset({"theory", "tree", "records", "config", "errors"})
INNER = BASE | {"native", "models", "kv", "sampling"}
ENGINE = INNER | {"executors", "drafters", "control", "engine", "profiling", "llm"}
# design.md §3: a unit (a package, or a module at the top) may import itself and these units, no others.
ALLOWED: dict[str, frozenset[str]] = {
    "theory": BASE,
    "tree": BASE,
    "records": BASE,
    "config": BASE,
    "errors": BASE,
    "native": frozenset(),
    "models": INNER - {"kv", "sampling"},
    "kv": INNER - {"models", "sampling"},
    "sampling": INNER - {"kv"},
    "executors": INNER,
    "drafters": INNER | {"executors", "control"},
    "control": INNER,
    "engine": ENGINE - {"llm", "profiling"},
    "profiling": ENGINE - {"llm"},
    "llm": ENGINE,
    "check": ENGINE | {"bench"},
    "bench": ENGINE,
    "advise": ENGINE | {"bench"},
    "server": ENGINE,
    "train": ENGINE,
    "cli": ENGINE | {"advise", "bench", "check", "server", "train"},
}
HEAVY = (
    "torch",
    "transformers",
    "rich",
    "typer",
    "jinja2",
    "tokenizers",
    "matplotlib",
    "huggingface_hub",
    "httpx2",
    "gguf",
    "fastapi",
    "pydantic",
    "uvicorn",
    "prometheus_client",
)

# Of a function, the lines of its body count, docstring and blank ones left out. A longer one is named here
# with its reason.
MAX_FILE_LINES = 320
MAX_FUNCTION_LINES = 32
EXCUSED_FILES: dict[str, str] = {}
EXCUSED_FUNCTIONS: dict[str, str] = {
    "src/paceline/models/gguf_tokenizer.py::_sentencepiece": "fills one record of ten fields from one file",
}


def unit_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the dotted names a module imports, wherever in the file the import stands."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def our_units(path: Path) -> set[str]:
    """Return the units of ``paceline`` that a module imports."""
    known = {unit_of(p) for p in MODULES} | set(ALLOWED)
    names = {name.split(".")[1] for name in imported_modules(path) if name.startswith("paceline.")}
    return names & known


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_direction_of_the_design(path: Path) -> None:
    unit = unit_of(path)
    if unit == "__init__":
        forbidden = our_units(path) & {"cli", "server", "bench", "train", "check", "advise"}
    elif unit == "__main__":
        forbidden = our_units(path) - {"cli"}
    else:
        assert unit in ALLOWED, f"{unit!r} has no place in the import order: add it to ALLOWED"
        forbidden = our_units(path) - ALLOWED[unit] - {unit}
    assert not forbidden, f"{path.relative_to(ROOT)} imports {sorted(forbidden)}"


def test_the_checker_sees_every_form_of_import() -> None:
    """Without this the test above could pass by not looking."""
    lines = [
        "import paceline.engine",
        "from paceline import drafters",
        "def f():",
        " from ..kv import x",
        " from . import y",
    ]
    source = "\n".join(lines)
    path = PACKAGE / "models" / "imaginary.py"
    real = Path.read_text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", lambda self, **kw: source if self == path else real(self, **kw))
        names = our_units(path)
    assert names == {"engine", "drafters", "kv", "models"}


def test_theory_needs_numpy_only() -> None:
    for path in sorted((PACKAGE / "theory").rglob("*.py")):
        outside = {name.split(".")[0] for name in imported_modules(path)} - {
            "numpy",
            "paceline",
            "matplotlib",
        }
        assert outside <= sys.stdlib_module_names | {"__future__"}, f"{path.name} imports {outside}"


def test_importing_the_package_stays_light() -> None:
    """`import paceline` and the public names load none of the heavy or optional packages."""
    script = f"import sys, paceline; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", f"import paceline also imports {done.stdout}"


def test_nothing_but_the_second_opinion_needs_torch() -> None:
    for path in MODULES:
        if unit_of(path) in {"train"} or path.name == "torch_executor.py":
            continue
        outside = {name.split(".")[0] for name in imported_modules(path)}
        assert not outside & {"torch", "transformers"}, (
            f"{path.relative_to(ROOT)} imports torch or transformers"
        )


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, source: list[str]) -> int:
    """Count the lines of a function's body without docstring and blank lines (a signature may be long)."""
    first = function.body[0]
    is_doc = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    skipped = set(range(first.lineno, (first.end_lineno or first.lineno) + 1)) if is_doc else set()
    last = function.end_lineno or function.lineno
    return sum(1 for n in range(first.lineno, last + 1) if n not in skipped and source[n - 1].strip())


def long_functions(path: Path) -> Iterator[tuple[str, int]]:
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = code_lines(node, text.splitlines())
            if lines > MAX_FUNCTION_LINES:
                yield f"{path.relative_to(ROOT)}::{node.name}", lines


def test_files_stay_short() -> None:
    paths = [*MODULES, *sorted((ROOT / "benchmarks").rglob("*.py"))]
    lengths = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in paths}
    too_long = {name: n for name, n in lengths.items() if n > MAX_FILE_LINES and name not in EXCUSED_FILES}
    assert not too_long, f"over {MAX_FILE_LINES} lines: {too_long}"
    stale = [name for name in EXCUSED_FILES if lengths.get(name, 0) <= MAX_FILE_LINES]
    assert not stale, f"no longer too long, or gone: {stale}"


def test_functions_stay_short() -> None:
    paths = [*MODULES, *sorted((ROOT / "benchmarks").rglob("*.py"))]
    found = dict(pair for path in paths for pair in long_functions(path))
    too_long = {name: n for name, n in found.items() if name not in EXCUSED_FUNCTIONS}
    assert not too_long, f"over {MAX_FUNCTION_LINES} lines of code: {too_long}"
    stale = [name for name in EXCUSED_FUNCTIONS if name not in found]
    assert not stale, f"no longer too long, or gone: {stale}"
