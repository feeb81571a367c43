"""Draft heads that come with Paceline, found by the weights of the target they were trained for.

The package folder ``heads`` holds one folder per head, with ``head.gguf`` (see ``eagle3_export_gguf``) and
its model card ``README.md``, and ``index.json``, which maps :func:`target_fingerprint` to the folder's name.
The fingerprint is made of norm weights: no quantisation touches them, so every file of one model has the
same, and any fine-tune another one.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from paceline.errors import ModelFileError
from paceline.models.spec import GGML_VECTOR_DTYPES, ModelSpec, TensorSource

HEADS = Path(__file__).resolve().parent.parent / "heads"


def target_fingerprint(spec: ModelSpec, source: TensorSource) -> str:
    """Return 32 hex digits: BLAKE2b of the model's dimensions and its norms as little-endian float32.

    Reads the final norm and both norms of each layer, some hundred kilobytes at most.
    """
    digest = hashlib.blake2b(digest_size=16)
    sizes = (spec.num_layers, spec.hidden_size, spec.num_heads, spec.num_kv_heads, spec.head_dim)
    digest.update(repr((*sizes, spec.ffn_size, spec.vocab_size)).encode())
    layers = range(spec.num_layers)
    names = [f"blk.{layer}.{norm}.weight" for layer in layers for norm in ("attn_norm", "ffn_norm")]
    for name in ("output_norm.weight", *names):
        stored = source.read_rows(name, 0, 1).view(GGML_VECTOR_DTYPES[source.tensors[name].ggml_type])
        digest.update(stored.astype(np.dtype("<f4")).tobytes())
    return digest.hexdigest()


def shipped_head(fingerprint: str, heads: Path = HEADS) -> Path | None:
    """Return the folder of the head made for the target with ``fingerprint``, ``None`` when there is none.

    Raises ``ModelFileError`` when the installed package is damaged.
    """
    index = heads / "index.json"
    if not index.is_file():
        return None
    try:
        known = json.loads(index.read_text(encoding="utf-8"))
        name = known.get(fingerprint)
    except (ValueError, AttributeError) as error:
        raise ModelFileError(f"{index} is no map of targets to heads ({error}): install again") from error
    if name is None:
        return None
    folder = heads / str(name)
    if not folder.is_dir():
        raise ModelFileError(f"{index} names the head {name!r}, but {folder} is missing: install again")
    return folder
