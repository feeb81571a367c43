"""Other engines' options for Paceline's drafters, and what is said where there are none."""

from __future__ import annotations

import json
import shlex

import pytest

from paceline.advise.export import ENGINES, Export, Setup, export
from paceline.errors import ConfigError

HUB = "hf:meta-llama/Llama-3.2-1B-Instruct"
HEAD = "eagle3:hf:yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"


def options(found: Export) -> dict[str, str]:
    """Return the command's options and their values."""
    words = list(found.command)
    return {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("-") and word != "-m"}


def notes(found: Export) -> str:
    return " ".join(found.notes)


@pytest.mark.parametrize(
    ("drafter", "expected"),
    [
        ("ngram", {"method": "ngram", "prompt_lookup_max": 5, "prompt_lookup_min": 2}),
        (
            "suffix",
            {
                "method": "suffix",
                "suffix_decoding_max_tree_depth": 17,
                "suffix_decoding_min_token_prob": 0.2,
            },
        ),
        (HEAD, {"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}),
        ("draft_model:/models/small", {"method": "draft_model", "model": "/models/small"}),
    ],
)
def test_vllm_takes_one_json_object(drafter: str, expected: dict[str, object]) -> None:
    found = export("vllm", Setup(HUB, drafter, 5))
    assert found.command[:3] == ("vllm", "serve", "meta-llama/Llama-3.2-1B-Instruct")
    assert json.loads(options(found)["--speculative-config"]) == {"num_speculative_tokens": 5, **expected}


def test_sglang_counts_the_root_among_its_draft_tokens() -> None:
    found = export("sglang", Setup(HUB, HEAD, 3))
    assert found.command[:3] == ("python3", "-m", "sglang.launch_server")
    assert options(found) == {
        "--model-path": "meta-llama/Llama-3.2-1B-Instruct",
        "--speculative-algorithm": "EAGLE3",
        "--speculative-draft-model-path": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        "--speculative-num-steps": "3",
        "--speculative-eagle-topk": "1",
        "--speculative-num-draft-tokens": "4",
    }
    assert options(export("sglang", Setup(HUB, "draft_model:/small", 3)))["--speculative-algorithm"] == (
        "STANDALONE"
    )


def test_llama_cpp_reads_files_and_hub_names() -> None:
    found = export("llama.cpp", Setup("/m/big.gguf", "draft_model:/m/small.gguf", 6))
    assert options(found) == {
        "--model": "/m/big.gguf",
        "--spec-type": "draft-simple",
        "--model-draft": "/m/small.gguf",
        "--spec-draft-n-max": "6",
    }
    head = options(export("llama.cpp", Setup("hf:o/big", "eagle3:hf:o/head:h.gguf", 6)))
    assert head["--spec-type"] == "draft-eagle3"
    assert (head["--hf-repo"], head["--spec-draft-hf"]) == ("o/big", "o/head")
    ngram = options(export("llama.cpp", Setup("/m/big.gguf", "ngram", 6)))
    assert (ngram["--spec-type"], ngram["--spec-ngram-simple-size-m"]) == ("ngram-simple", "6")
    assert "put the path of smollm2-135m" in notes(export("llama.cpp", Setup("smollm2-135m", "ngram")))


@pytest.mark.parametrize("engine", ENGINES)
def test_plain_decoding_is_the_engine_without_options(engine: str) -> None:
    found = export(engine, Setup(HUB, "none", 0))
    assert found.command and not any("spec" in word for word in found.command)
    assert "plain decoding" in notes(found)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("drafter", ["recycle", "prediction", "draft_model:self:4", "phrases"])
def test_what_has_no_equivalent_is_said_and_not_made_up(engine: str, drafter: str) -> None:
    found = export(engine, Setup(HUB, drafter))
    assert found.command == ()
    assert f"{engine} has no equivalent of {drafter}" in notes(found)


@pytest.mark.parametrize("engine", ENGINES)
def test_auto_becomes_the_closest_drafter_and_says_what_is_lost(engine: str) -> None:
    found = export(engine, Setup(HUB, "auto"))
    assert found.command
    assert found.notes[0].startswith(f"{engine} has no equivalent of auto")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_shipped_head_must_be_named_first(engine: str) -> None:
    found = export(engine, Setup("smollm2-135m", "eagle3"))
    assert found.command == () and "eagle3:PATH" in notes(found)


def test_files_of_the_wrong_kind_are_noted() -> None:
    found = export("vllm", Setup("/m/big.gguf", "eagle3:/m/head.gguf"))
    assert "safetensors" in notes(found) and "paceline train export" in notes(found)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_text_can_be_pasted_into_a_shell(engine: str) -> None:
    found = export(engine, Setup("/m/my model", "draft_model:/m/small one"))
    lines = found.text.splitlines()
    assert all(line.startswith("# ") for line in lines[:-1]) and "checked against" in lines[0]
    assert tuple(shlex.split(lines[-1])) == found.command


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'llama.cpp'\?"):
        export("llamacpp", Setup(HUB, "none"))
