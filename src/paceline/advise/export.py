"""The same drafting in other engines: their options for what Paceline recommends, and what they lack.

Option names are those of the versions in ``CHECKED``; docs/advise.md says where they were read.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paceline.config import DEFAULT_NUM_DRAFT_TOKENS
from paceline.drafters.ngram import NgramOptions
from paceline.drafters.suffix import SuffixOptions
from paceline.errors import ConfigError, nearest_name
from paceline.models.catalog import CATALOG

CHECKED = {
    "vllm": "vLLM's main branch of autumn 2026",
    "sglang": "SGLang's main branch of autumn 2026",
    "llama.cpp": "llama.cpp behind its pull requests 22397 and 22964 (April and May 2026)",
}
ENGINES = tuple(CHECKED)
_FIXED = "the draft length is fixed: so much is drafted whether it pays or not"
_LACKING = {
    "recycle": "Token Recycling",
    "prediction": "predicted outputs",
    "draft_model": "drafting with the target's own first layers",
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What to translate: a model, a drafter, and the most tokens of one draft."""

    model: str
    drafter: str
    num_draft_tokens: int = DEFAULT_NUM_DRAFT_TOKENS

    @property
    def kind(self) -> str:
        """The drafter's name without its argument."""
        return self.drafter.partition(":")[0]

    @property
    def source(self) -> str:
        """The head or model that the drafter reads, as the user named it; empty when it names none."""
        return self.drafter.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Export:
    """``command``: words of the command line, empty when there is no equivalent. ``notes``: what differs."""

    engine: str
    command: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The command behind its notes, which are comments: it can be pasted into a shell as it is."""
        lines = [f"# checked against {CHECKED[self.engine]}", *(f"# {note}" for note in self.notes)]
        if self.command:
            lines.append(shlex.join(self.command))
        return "\n".join(lines)


def export(engine: str, setup: Setup) -> Export:
    """Return the equivalent of ``setup`` for ``engine``. Raises ``ConfigError`` for an unknown engine."""
    if engine not in ENGINES:
        raise ConfigError(
            f"no export for {engine!r}{nearest_name(engine, ENGINES)}; engines are {', '.join(ENGINES)}"
        )
    if setup.kind in ("recycle", "prediction") or setup.source.startswith("self:"):
        note = f"{engine} has no equivalent of {setup.drafter} ({_LACKING[setup.kind]}): nothing to export"
        return Export(engine, (), (note,))
    if setup.kind == "eagle3" and not setup.source:
        note = (
            "this head comes with Paceline and is a GGUF file in its package (paceline/heads): nothing to "
            "export before it is named, as eagle3:PATH"
        )
        return Export(engine, (), (note,))
    if setup.kind == "auto":
        return _for_auto(engine, setup)
    target, writers = _ENGINES[engine]
    if setup.kind not in writers:
        note = f"{engine} has no equivalent of {setup.drafter}: nothing to export"
        return Export(engine, (), (note,))
    command, notes = target(setup.model)
    words, more = writers[setup.kind](setup)
    return Export(engine, (*command, *words), (*notes, *more))


def _for_auto(engine: str, setup: Setup) -> Export:
    """``auto`` exists nowhere else: return the closest single drafter and say what is lost."""
    closest = "ngram" if engine == "llama.cpp" else "suffix"
    found = export(engine, Setup(setup.model, closest, setup.num_draft_tokens))
    note = (
        f"{engine} has no equivalent of auto: it does not mix drafters, and does not stop when drafting does "
        f"not pay; this is the closest fixed drafter, {closest}"
    )
    return Export(engine, found.command, (note, *found.notes))


Words = tuple[str, ...]
Written = tuple[Words, Words]
"""Words of the command, and notes."""


# ---- vLLM ----


def _vllm(setup: Setup, config: Mapping[str, object], *notes: str) -> Written:
    config = {"num_speculative_tokens": setup.num_draft_tokens, **config}
    return ("--speculative-config", json.dumps(config)), (*notes, _FIXED)


def _vllm_ngram(setup: Setup) -> Written:
    options = NgramOptions()
    lengths = {"prompt_lookup_max": options.max_n, "prompt_lookup_min": options.min_n}
    return _vllm(setup, {"method": "ngram", **lengths})


def _vllm_suffix(setup: Setup) -> Written:
    options = SuffixOptions()
    config = {
        "method": "suffix",
        "suffix_decoding_max_tree_depth": options.max_match + setup.num_draft_tokens,
        "suffix_decoding_min_token_prob": options.min_probability,
    }
    note = "the V1 model runner needs `pip install arctic-inference`; V2 does not heed min_token_prob"
    return _vllm(setup, config, note)


def _vllm_model(setup: Setup) -> Written:
    """Return a head or a draft model."""
    notes = _folder_notes("vLLM", setup.source)
    if setup.kind == "eagle3":
        note = "vLLM drafts a chain of this length at every step, Paceline a tree of this size where it pays"
        notes = (*_head_notes("vLLM", setup.source), note)
    return _vllm(setup, {"method": setup.kind, "model": _hub(setup.source)}, *notes)


# ---- SGLang ----


def _sglang_model(setup: Setup) -> Written:
    """Return a head or a draft model. SGLang counts the root: a chain of k steps verifies k + 1 tokens."""
    steps, algorithm, notes = setup.num_draft_tokens, "STANDALONE", _folder_notes("SGLang", setup.source)
    if setup.kind == "eagle3":
        note = "a chain; for trees raise --speculative-eagle-topk and --speculative-num-draft-tokens"
        algorithm, notes = "EAGLE3", (*_head_notes("SGLang", setup.source), note)
    words = (
        *("--speculative-algorithm", algorithm, "--speculative-draft-model-path", _hub(setup.source)),
        *("--speculative-num-steps", str(steps), "--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", str(steps + 1)),
    )
    return words, (*notes, _FIXED)


def _sglang_lookup(setup: Setup, option: str, value: str, note: str) -> Written:
    count = str(setup.num_draft_tokens)
    words = ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", count, option, value)
    return words, (note, _FIXED)


def _sglang_ngram(setup: Setup) -> Written:
    options = NgramOptions()
    note = (
        "NGRAM runs on CUDA only and shares one cache between requests, Paceline's ngram reads the request "
        f"alone; matches of {options.min_n} to {options.max_n} tokens have no option that all versions know"
    )
    return _sglang_lookup(setup, "--speculative-ngram-max-bfs-breadth", "1", note)


def _sglang_suffix(setup: Setup) -> Written:
    note = "no suffix tree in SGLang's main branch; NGRAM by frequency (PROB) is the closest, on CUDA only"
    return _sglang_lookup(setup, "--speculative-ngram-match-type", "PROB", note)


# ---- llama.cpp ----


def _llama_ngram(setup: Setup) -> Written:
    options = NgramOptions()
    sizes: Words = ("--spec-ngram-simple-size-n", str(options.min_n))
    sizes += ("--spec-ngram-simple-size-m", str(setup.num_draft_tokens))
    note = (
        f"ngram-simple looks for one length of match; Paceline's tries {options.max_n} down to "
        f"{options.min_n}, and the shortest is written here"
    )
    return ("--spec-type", "ngram-simple", *sizes), (note, _FIXED)


def _llama_suffix(setup: Setup) -> Written:
    size = ("--spec-ngram-map-k4v-size-m", str(setup.num_draft_tokens))
    note = (
        "no suffix tree in llama.cpp; ngram-map-k4v (the most frequent continuation in the token history, "
        "experimental) is the closest"
    )
    return ("--spec-type", "ngram-map-k4v", *size), (note, _FIXED)


def _llama_draft(setup: Setup) -> Written:
    kind = "draft-eagle3" if setup.kind == "eagle3" else "draft-simple"
    model = _gguf("--model-draft", "--spec-draft-hf", setup.source)
    words = ("--spec-type", kind, *model, "--spec-draft-n-max", str(setup.num_draft_tokens))
    older = "before April 2026: --model-draft FILE --draft-max K, without --spec-type, and no EAGLE-3"
    return words, (*_gguf_notes(setup.source), older, _FIXED)


# ---- targets, and names of models ----


def _plain(option: str) -> Callable[[Setup], Written]:
    return lambda _setup: ((), (f"no {option}: plain decoding",))


def _vllm_target(model: str) -> Written:
    return ("vllm", "serve", _hub(model)), _folder_notes("vLLM", model)


def _sglang_target(model: str) -> Written:
    command = ("python3", "-m", "sglang.launch_server", "--model-path", _hub(model))
    return command, _folder_notes("SGLang", model)


def _llama_target(model: str) -> Written:
    return ("llama-server", *_gguf("--model", "--hf-repo", model)), _gguf_notes(model)


def _hub(name: str) -> str:
    """Return a model's name without Paceline's ``hf:`` and its file, and a path as it is."""
    return name.removeprefix("hf:").partition(":")[0] if name.startswith("hf:") else name


def _gguf(local: str, hub: str, name: str) -> Words:
    return (hub, _hub(name)) if name.startswith("hf:") else (local, name)


def _folder_notes(engine: str, name: str) -> Words:
    if not (name.endswith(".gguf") or name in CATALOG):
        return ()
    return (
        f"{name} is a GGUF model here: give {engine} the folder or hub name of the same model in safetensors "
        "(weights of another precision accept other tokens, so measure again)",
    )


def _head_notes(engine: str, name: str) -> Words:
    if not name.endswith(".gguf"):
        return ()
    note = f"{name} is a GGUF head, which {engine} does not read: `paceline train export` writes folders"
    return (note,)


def _gguf_notes(name: str) -> Words:
    if name.endswith(".gguf") or name.startswith("hf:"):
        return ()
    asked = f", which `paceline models --path {name}` prints" if name in CATALOG else " as one"
    return (f"llama.cpp reads GGUF files: put the path of {name}{asked}",)


Target = Callable[[str], Written]
Writers = Mapping[str, Callable[[Setup], Written]]
_ENGINES: dict[str, tuple[Target, Writers]] = {
    "vllm": (
        _vllm_target,
        {
            "none": _plain("--speculative-config"),
            "ngram": _vllm_ngram,
            "suffix": _vllm_suffix,
            "eagle3": _vllm_model,
            "draft_model": _vllm_model,
        },
    ),
    "sglang": (
        _sglang_target,
        {
            "none": _plain("--speculative-algorithm"),
            "ngram": _sglang_ngram,
            "suffix": _sglang_suffix,
            "eagle3": _sglang_model,
            "draft_model": _sglang_model,
        },
    ),
    "llama.cpp": (
        _llama_target,
        {
            "none": _plain("--spec-type"),
            "ngram": _llama_ngram,
            "suffix": _llama_suffix,
            "eagle3": _llama_draft,
            "draft_model": _llama_draft,
        },
    ),
}
