"""Types of the native module. Arrays are C-contiguous and on the CPU; wrong ones raise ``TypeError``."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int32]
_Floats = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]
_Law = tuple[_Ints | None, _Doubles]

BLOCK_SLOTS: Final[int]

def paths() -> list[str]: ...
def read_seconds(pool: ThreadPool, memory: _Bytes) -> float: ...

class ThreadPool:
    def __init__(self, threads: int) -> None: ...
    @property
    def size(self) -> int: ...

class Crowding:
    def __init__(self) -> None: ...
    @property
    def alone(self) -> bool: ...
    def judge(self, seconds: float, running_seconds: float) -> None: ...

class Model:
    def __init__(
        self,
        *,
        layers: int,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        ffn: int,
        vocab: int,
        outputs: int,
        eps: float,
        gelu: bool,
        attention_scale: float,
        attention_softcap: float,
        final_softcap: float,
        embedding_scale: float,
        ropes: Sequence[tuple[Sequence[float], bool, float]],
        layer_ropes: Sequence[int],
        layer_windows: Sequence[int],
    ) -> None: ...
    def add_weight(
        self, layer: int, name: str, rows: int, cols: int, ggml_type: int, as_float32: bool
    ) -> None: ...
    def add_gate_up(
        self, layer: int, rows: int, cols: int, gate_type: int, up_type: int, as_float32: bool
    ) -> None: ...
    def load_rows(self, layer: int, name: str, start: int, ggml_type: int, data: _Bytes) -> None: ...
    def set_vector(self, layer: int, name: str, values: _Floats) -> None: ...
    def set_pairs(
        self,
        *,
        states: int,
        state_width: int,
        norm_before_residual: bool,
        norm_output: bool,
        target: Model | None,
    ) -> None: ...
    def take_output_rows(self, target: Model, ids: _Ints) -> None: ...
    def dequantize_row(self, layer: int, name: str, row: int, out: _Floats) -> None: ...
    @property
    def weight_bytes(self) -> int: ...

class Decoder:
    def __init__(
        self,
        *,
        model: Model,
        pool: ThreadPool,
        path: str,
        layers: int,
        num_blocks: int,
        half_cache: bool,
        max_rows: int,
    ) -> None: ...
    def forward(
        self,
        tokens: _Ints,
        sequences: _Ints,
        slots: _Ints,
        prefix_lengths: _Ints,
        tail_offsets: _Ints,
        tails: _Ints,
        block_offsets: _Ints,
        blocks: _Ints,
        logit_rows: _Ints,
        logits: _Floats,
        /,
    ) -> None: ...
    def forward_with_states(
        self,
        tokens: _Ints,
        sequences: _Ints,
        slots: _Ints,
        prefix_lengths: _Ints,
        tail_offsets: _Ints,
        tails: _Ints,
        block_offsets: _Ints,
        blocks: _Ints,
        logit_rows: _Ints,
        logits: _Floats,
        layers: _Ints,
        states: _Floats,
        /,
    ) -> None: ...
    def project(self, states: _Floats, projected: _Floats, /) -> None: ...
    def catch_up(
        self,
        tokens: _Ints,
        sequences: _Ints,
        slots: _Ints,
        prefix_lengths: _Ints,
        tail_offsets: _Ints,
        tails: _Ints,
        block_offsets: _Ints,
        blocks: _Ints,
        logit_rows: _Ints,
        states: _Floats,
        /,
    ) -> None: ...
    def forward_pairs(
        self,
        tokens: _Ints,
        sequences: _Ints,
        slots: _Ints,
        prefix_lengths: _Ints,
        tail_offsets: _Ints,
        tails: _Ints,
        block_offsets: _Ints,
        blocks: _Ints,
        logit_rows: _Ints,
        projected: _Floats,
        logits: _Floats,
        out: _Floats,
        /,
    ) -> None: ...
    def move_slots(self, source: _Ints, destination: _Ints, /) -> None: ...
    def profile(self, on: bool) -> None: ...
    def take_profile(self) -> dict[str, float]: ...
    @property
    def path(self) -> str: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def cache_bytes(self) -> int: ...

class TreeDrafter:
    def __init__(self, head: Decoder, draft_to_target: _Ints) -> None: ...
    def draft(
        self,
        tokens: _Ints,
        sequences: _Ints,
        slots: _Ints,
        prefix_lengths: _Ints,
        tail_offsets: _Ints,
        tails: _Ints,
        block_offsets: _Ints,
        blocks: _Ints,
        logit_rows: _Ints,
        states: _Floats,
        max_nodes: int,
        max_depth: int,
        width: int,
        min_log_prob: float,
        min_parent_log_prob: float,
        out_tokens: _Ints,
        out_parents: _Ints,
        out_log_probs: _Floats,
        /,
    ) -> int: ...

class _Sampling:
    """The submodule ``sampling``."""

    @staticmethod
    def argmax(logits: _Floats) -> int: ...
    @staticmethod
    def filtered_law(logits: _Floats, temperature: float, top_k: int, top_p: float, min_p: float) -> _Law: ...
    @staticmethod
    def coupled_index(ids: _Ints, probs: _Doubles, key: int) -> int: ...
    @staticmethod
    def inverse_index(probs: _Doubles, uniform: float) -> int: ...
    @staticmethod
    def positive_difference(
        p_ids: _Ints, p_probs: _Doubles, q_ids: _Ints, q_probs: _Doubles, scale: float
    ) -> tuple[tuple[_Ints, _Doubles], float]: ...
    @staticmethod
    def positive_mass(
        p_ids: _Ints, p_probs: _Doubles, q_ids: _Ints, q_probs: _Doubles, scale: float
    ) -> float: ...
    @staticmethod
    def log_sum_exp(logits: _Floats) -> float: ...
    @staticmethod
    def top_ids(rows: _Floats, wanted: int) -> _Ints: ...
    @staticmethod
    def noise_word(key: int, id: int) -> int: ...  # noqa: A002
    @staticmethod
    def instruction_paths() -> list[str]: ...
    @staticmethod
    def choose_instruction_path(name: str) -> None: ...

sampling: Final[_Sampling]
