"""Open a Hugging Face folder: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import ModelFileError
from paceline.models import ggml_types
from paceline.models.hf_config import HfConfig, spec_from_config
from paceline.models.hf_source import FusedRows, HfSource
from paceline.models.loading import ModelFiles, Quant
from paceline.models.safetensors_file import read_folder_tensors, read_json_object
from paceline.models.tensor_layout import check_tensors

if TYPE_CHECKING:
    from paceline.models.tokenizer import Tokenizer

QUANTS = {"none": None, "q8": ggml_types.Q8_0, "q4": ggml_types.Q4_0}


def load_hf_folder(folder: Path, quant: Quant, max_context: int | None) -> ModelFiles:
    """Return the model in ``folder``. Raises ``ModelFileError``, naming the file and what is wrong in it."""
    config = HfConfig(read_json_object(folder / "config.json"), folder / "config.json")
    stored = read_folder_tensors(folder)
    source = HfSource(stored, config.family, _fused(config) if config.family.fused else {}, QUANTS[quant])
    try:
        if config.is_tied:
            source.drop("output.weight")
        spec = spec_from_config(config, "blk.0.attn_q.bias" in source.tensors, max_context)
        check_tensors(spec, source.tensors)
        template = read_chat_template(folder)
        if not (folder / "tokenizer.json").is_file():
            raise ModelFileError(
                f"{folder} has no tokenizer.json: save one with transformers' AutoTokenizer.save_pretrained"
            )
    except BaseException:
        source.close()
        raise

    def build_tokenizer() -> Tokenizer:
        from paceline.models.hf_tokenizer import build_hf_tokenizer

        return build_hf_tokenizer(folder, spec)

    return ModelFiles(folder, spec, source, template, build_tokenizer, folder.resolve().name)


def _fused(config: HfConfig) -> dict[str, FusedRows]:
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "self_attn.qkv_proj": FusedRows({"attn_q": queries, "attn_k": keys, "attn_v": keys}),
        "mlp.gate_up_proj": FusedRows({"ffn_gate": config.ffn_size, "ffn_up": config.ffn_size}),
    }


def read_chat_template(folder: Path) -> str | None:
    """Return chat_template.jinja, or the (default) template of tokenizer_config.json, if there is one."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    settings = folder / "tokenizer_config.json"
    template: Any = read_json_object(settings).get("chat_template") if settings.is_file() else None
    if isinstance(template, list):
        named = {
            t["name"]: t["template"]
            for t in template
            if isinstance(t, dict) and {"name", "template"} <= set(t)
        }
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise ModelFileError(f"{settings} has a chat_template that is no text: download it again")
    return template
