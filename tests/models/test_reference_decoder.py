"""The float64 reference equals transformers: on every tiny model, and on the two real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.models.loading import ModelFiles, load_model_files
from support.reference_decoder import ReferenceDecoder, dequantised
from support.tiny_models import TINY_VARIANTS, write_tiny_gguf, write_tiny_hf

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("ignore")]


def transformers_logits(model: Any, tokens: list[int]) -> np.ndarray:
    import torch

    torch.set_num_threads(1)
    with torch.no_grad():
        logits: np.ndarray = model(torch.tensor([tokens])).logits[0].double().numpy()
    return logits


def relative_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference of logits over their largest size."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


@pytest.mark.parametrize("ggml_type", ["f32", "q4_k"])
@pytest.mark.parametrize("arch", TINY_VARIANTS)
def test_equals_transformers_on_tiny_models(tmp_path: Path, arch: str, ggml_type: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = write_tiny_hf(tmp_path / "hf", arch, ggml_type, seed=3)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with load_model_files(write_tiny_gguf(tmp_path / "m.gguf", arch, ggml_type, seed=3)) as model:
        tokens = np.random.default_rng(1).integers(0, model.spec.vocab_size, 100).tolist()
        ours = ReferenceDecoder(model.spec, model.source).logits(tokens)
    assert relative_error(ours, transformers_logits(theirs, tokens)) < 2e-5


def transformers_twin(model: ModelFiles) -> Any:
    """Build transformers' model of a real spec and give it the dequantised weights."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

    spec = model.spec
    common: dict[str, Any] = dict(  # noqa: C408

        vocab_size=spec.vocab_size, hidden_size=spec.hidden_size, intermediate_size=spec.ffn_size,
        num_hidden_layers=spec.num_layers, num_attention_heads=spec.num_heads,
        num_key_value_heads=spec.num_kv_heads, head_dim=spec.head_dim, rms_norm_eps=spec.norm_eps,
        max_position_embeddings=spec.max_context, tie_word_embeddings=True, attn_implementation="eager",
    )  # fmt: skip
    names = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_norm": "post_attention_layernorm",
             "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}  # fmt: skip
    is_gemma = spec.architecture == "gemma3"
    if is_gemma:
        names |= {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
                  "post_ffw_norm": "post_feedforward_layernorm"}  # fmt: skip
        twin = Gemma3ForCausalLM(Gemma3TextConfig(**common, sliding_window=512, query_pre_attn_scalar=256))
    else:
        twin = LlamaForCausalLM(LlamaConfig(**common, rope_theta=100000.0))
    state = twin.state_dict()
    for name in model.source.tensors:
        values = dequantised(model.source, name)
        if is_gemma and "norm" in name:
            values = values - 1
        if name.startswith("blk."):
            _, layer, part, suffix = name.split(".")
            if not is_gemma and part in ("attn_q", "attn_k"):
                pairs = values.reshape(-1, spec.head_dim // 2, 2, values.shape[1])
                values = pairs.swapaxes(1, 2).reshape(values.shape)
            target = f"model.layers.{layer}.{names[part]}.{suffix}"
        else:
            top = {
                "token_embd.weight": "model.embed_tokens.weight",
                "output_norm.weight": "model.norm.weight",
            }
            target = top[name]
        state[target].copy_(torch.from_numpy(np.ascontiguousarray(values)))
    return twin.eval()


@pytest.mark.real_model
@pytest.mark.parametrize(
    ("fixture", "text"),
    [("smollm2_path", "The capital of France is"), ("gemma3_path", "The capital of France is Paris, and")],
)
def test_equals_transformers_on_real_models(request: pytest.FixtureRequest, fixture: str, text: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    with load_model_files(request.getfixturevalue(fixture)) as model:
        tokens = model.tokenizer.encode(text)
        theirs = transformers_logits(transformers_twin(model), tokens)
        ours = ReferenceDecoder(model.spec, model.source).logits(tokens)
    assert relative_error(ours, theirs) < 1e-3
    assert (ours.argmax(axis=-1) == theirs.argmax(axis=-1)).all()
