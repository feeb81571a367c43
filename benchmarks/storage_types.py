"""The table of forwards for every storage type and two sizes, beside llama.cpp's, in turns.

A model of each size is written with random weights (as by ``paceline synth``), measured with 1 to 16 rows and
logits for every row, and deleted again. Speed does not depend on the values::

    python benchmarks/storage_types.py --peer-python /path/to/other/venv/bin/python --markdown out/types.md

Nothing is installed here; without llama.cpp the table has our rows alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from peering import measure
from peering.measure import Plan, Results
from peering.process import PeerProcess
from peering.protocol import PeerSettings, PeerUnavailableError

from paceline.models.synth import write_synthetic_model

SIZES = ("smollm2-135m", "llama-3.2-1b")
TYPES = ("q4_0", "q4_1", "q4_k", "q5_0", "q5_k", "q6_k", "q8_0", "f16", "bf16")
SHOWN = (1, 2, 3, 4, 6, 8, 12, 16)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--sizes", nargs="+", default=list(SIZES))
    add("--types", nargs="+", default=list(TYPES))
    add("--rows", type=int, nargs="+", default=list(SHOWN))
    add("--depth", type=int, default=128, help="tokens already in the cache")
    add("--forwards", type=int, default=4, help="forwards per width, engine and repeat")
    add("--repeat", type=int, default=3)
    add("--threads", type=int, default=2)
    add("--peer-python", default=sys.executable, help="interpreter that has llama-cpp-python")
    add("--folder", type=Path, help="where the models are written (default: a temporary folder)")
    add("--json", type=Path)
    add("--markdown", type=Path)
    return parser.parse_args()


def measured(model: Path, options: argparse.Namespace, log: IO[bytes]) -> Results:
    """Return the forwards of both engines on one file."""
    settings = PeerSettings(str(model), options.threads, context=512)
    plan = Plan(("forward",), tuple(options.rows), options.depth, options.forwards, 0, 0, options.repeat)
    results = Results()
    with ExitStack() as stack:
        peers = {}
        for name, python in (("paceline", sys.executable), ("llama.cpp", options.peer_python)):
            try:
                peers[name] = stack.enter_context(PeerProcess(name, python, settings, log))
            except (PeerUnavailableError, RuntimeError) as error:
                results.notes.append(f"{name}: {error}")
        measure.measure_forwards(peers, plan, results)
    return results


def table_row(label: str, engine: str, milliseconds: dict[int, float]) -> str:
    """Return one line of the markdown table: milliseconds of one row, then r(M)."""
    one = milliseconds[1]
    ratios = " | ".join(f"{value / one:.2f}" for rows, value in milliseconds.items() if rows != 1)
    return f"| {label} | {engine} | {one:.2f} | {ratios} |"


def main() -> None:
    """Measure size by size and type by type; each finished line is printed at once."""
    options = parse()
    header = f"| model | engine | 1 row, ms | {' | '.join(f'r({m})' for m in options.rows if m != 1)} |"
    lines = [header, "|:--|:--|" + "--:|" * len(options.rows)]
    figures: dict[str, dict[str, dict[int, float]]] = {}
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, tempfile.TemporaryFile() as log:
        for size in options.sizes:
            for kind in options.types:
                model = Path(folder) / "model.gguf"
                write_synthetic_model(size, kind, model)
                results = measured(model, options, log)
                model.unlink()
                figures[f"{size} {kind}"] = results.forward_ms
                for engine, milliseconds in results.forward_ms.items():
                    lines.append(table_row(f"{size} {kind}", engine, milliseconds))
                    print(lines[-1], flush=True)
                for note in results.notes:
                    print(f"- {size} {kind}: {note}", file=sys.stderr)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
