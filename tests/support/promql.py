"""What a PromQL expression asks for, checked against an exposition."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

_NAME = re.compile(r"\b((?:paceline|vllm):\w+|process_\w+)(?:{([^}]*)})?")
_GROUP = re.compile(r"\bby \(([^)]*)\)")
_LABEL = re.compile(r"(\w+)\s*(?:=|!=|=~|!~)\s*\"")


def known_labels(exposition: str) -> dict[str, set[str]]:
    """Return the labels of each sample name in a text exposition."""
    known: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            known.setdefault(sample.name, set()).update(sample.labels)
    return known


def check_query(query: str, known: dict[str, set[str]]) -> set[str]:
    """Return the names that ``query`` asks for. Fails when one, or a label said of it, does not exist."""
    found = _NAME.findall(query)
    assert found, f"no metric in {query!r}"
    for name, matchers in found:
        assert name in known, f"{name} does not exist: {query}"
        for label in _LABEL.findall(matchers):
            assert label in known[name], f"{name} has no label {label}: {query}"
    for group in _GROUP.findall(query):
        for label in group.replace(" ", "").split(","):
            assert any(label in known[name] for name, _ in found), f"nothing has the label {label}: {query}"
    return {name for name, _ in found}
