"""The stub of the native module says what the module has: each name, and each function's parameters."""

from __future__ import annotations

import ast
import re
from types import ModuleType
from typing import Any

from paceline.native import _core

STUB = "src/paceline/native/_core.pyi"


def _parameters(function: ast.FunctionDef) -> tuple[list[str], list[str]]:
    """Return the places of positional-only parameters and the names of all others, ``self`` left out."""
    arguments = function.args
    return (
        [f"#{place}" for place, _ in enumerate(arguments.posonlyargs)],
        [a.arg for a in (*arguments.args, *arguments.kwonlyargs) if a.arg != "self"],
    )


def _from_stub(nodes: list[ast.stmt]) -> dict[str, Any]:
    """Return public names: functions with their parameters, classes with their members, values with None."""
    found: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            is_property = any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)
            found[node.name] = None if is_property else _parameters(node)
        elif isinstance(node, ast.ClassDef):
            found[node.name] = _from_stub(node.body)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = None
    return found


def _signature(function: Any) -> tuple[list[str], list[str]]:
    """Read what nanobind wrote down; what stands in brackets is no Python (``ndarray[dtype=int32, …]``)."""
    text = function.__nb_signature__[0][0]
    while "[" in text:
        text = re.sub(r"\[[^\[\]]*\]", "", text)
    (parsed,) = ast.parse(f"{text}: ...").body
    assert isinstance(parsed, ast.FunctionDef)
    return _parameters(parsed)


def _from_module(owner: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, member in vars(owner).items():
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, ModuleType | type):
            found[name] = _from_module(member)
        else:
            found[name] = _signature(member) if hasattr(member, "__nb_signature__") else None
    return found


def test_the_stub_lists_the_module(request: Any) -> None:
    stub = _from_stub(ast.parse((request.config.rootpath / STUB).read_text()).body)
    module = _from_module(_core)
    assert module["Decoder"]["forward"], "nothing was read from the module"
    stub["sampling"] = stub.pop("_Sampling")
    assert stub == module
