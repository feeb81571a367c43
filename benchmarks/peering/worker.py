"""A peer engine as a process: one JSON request per line on stdin, one JSON answer per line on stdout.

Run as ``PYTHONPATH=benchmarks python -m peering.worker NAME`` under any interpreter that has the engine.
Engines print to file descriptor 1 as they like, so the answers go to a private copy of it.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from typing import Any, TextIO

from peering.protocol import Peer, PeerSettings, PeerUnavailableError

PEERS = {
    "llama.cpp": ("peering.llama_cpp_peer", "LlamaCppPeer"),
    "openvino-genai": ("peering.openvino_peer", "OpenVinoPeer"),
    "transformers": ("peering.transformers_peer", "TransformersPeer"),
    "paceline": ("peering.paceline_peer", "PacelinePeer"),
}


def open_peer(name: str, settings: PeerSettings) -> Peer:
    """Load engine ``name`` with its model. Raises ``PeerUnavailableError`` when that cannot be."""
    module, attribute = PEERS[name]
    peer: Peer = getattr(importlib.import_module(module), attribute)(settings)
    return peer


def answer(peer: Peer, request: dict[str, Any]) -> Any:
    """Carry out one request: ``{"call": method, "arguments": {…}}``."""
    result = getattr(peer, request["call"])(**request["arguments"])
    return dataclasses.asdict(result) if dataclasses.is_dataclass(result) else result


def serve(name: str, requests: TextIO, answers: TextIO) -> None:
    """Answer requests until stdin ends. The first line holds the settings."""
    peer: Peer | None = None
    for line in requests:
        request = json.loads(line)
        try:
            if peer is None:
                peer = open_peer(name, PeerSettings(**request))
                reply: dict[str, Any] = {"result": peer.describe()}
            else:
                reply = {"result": answer(peer, request)}
        except PeerUnavailableError as error:
            reply = {"unavailable": str(error)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def main() -> None:
    """Keep the real stdout for answers and send everything an engine prints to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin, answers)


if __name__ == "__main__":
    main()
