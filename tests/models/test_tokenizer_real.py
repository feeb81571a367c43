"""Real vocabularies against transformers and llama.cpp, on a corpus of nearly 5,000 strings."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from paceline.models.loading import load_model_files
from paceline.models.tokenizer import Tokenizer
from support.reference_bpe import ReferenceBpe
from support.tokenizer_corpus import tokenizer_corpus

pytestmark = [pytest.mark.real_model, pytest.mark.filterwarnings("ignore")]
CORPUS = tokenizer_corpus()


def test_the_corpus_is_large_enough() -> None:
    assert len(set(CORPUS)) >= 3000


@pytest.fixture(scope="module")
def smollm(smollm2_path: Path) -> Tokenizer:
    with load_model_files(smollm2_path) as model:
        return model.tokenizer


@pytest.fixture(scope="module")
def gemma(gemma3_path: Path) -> Tokenizer:
    with load_model_files(gemma3_path) as model:
        return model.tokenizer


def transformers_tokenizer(path: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


def ids_of(theirs: Any, text: str) -> list[int]:
    ids: list[int] = theirs.encode(text, add_special_tokens=False)
    return ids


@pytest.mark.reference
def test_gemma_ids_equal_transformers(gemma: Tokenizer, gemma3_path: Path) -> None:
    theirs = transformers_tokenizer(gemma3_path)
    different = [
        text
        for text in CORPUS
        if gemma.encode(text, parse_special=True, add_bos=False) != ids_of(theirs, text)
    ]
    assert different == []
    assert gemma.encode("Hello") == theirs.encode("Hello")  # BOS in front


@pytest.mark.reference
def test_smollm_ids_equal_transformers(smollm: Tokenizer, smollm2_path: Path) -> None:
    """transformers' GGUF conversion forgets that SmolLM cuts digits off, as its tokenizer.json does."""
    from tokenizers import pre_tokenizers

    theirs = transformers_tokenizer(smollm2_path)
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    different = [text for text in CORPUS if smollm.encode(text, parse_special=True) != ids_of(theirs, text)]
    assert different == []


def test_smollm_ids_equal_a_plain_reference(smollm: Tokenizer, smollm2_path: Path) -> None:
    from paceline.models.gguf_file import read_gguf_header

    metadata = read_gguf_header(smollm2_path).metadata
    merges = list(metadata["tokenizer.ggml.merges"])  # type: ignore[arg-type]
    reference = ReferenceBpe("smollm", list(smollm.tokens), merges)
    assigned = [text for text in CORPUS if all(unicodedata.category(c) != "Cn" for c in text)]
    assert len(assigned) > 3000
    assert [text for text in assigned if smollm.encode(text) != reference.encode(text)] == []


def _digest(tokenizer: Tokenizer, texts: list[str]) -> str:
    ids = [tokenizer.encode(text, parse_special=True, add_bos=False) for text in texts]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


# Made with llama-cpp-python 0.3.36: `Llama(path, vocab_only=True).tokenize(..., special=True)`.
LLAMA_CPP_SMOLLM = "12cfdc93410e38ba3f5fcee083e6b935bb9ee0792841421df4eb42537e2b8bd0"
LLAMA_CPP_GEMMA = "754a931f00c4c83ba9ffa9efa50b6fcc355892357248d83a35f5ddc6b321ec7b"


def llama_cpp_texts(is_gemma: bool) -> list[str]:
    """The texts without those where llama.cpp is known to differ.

    For SmolLM one text with a letter (U+1F5E) that Unicode has not assigned; for Gemma runs of more than 31
    spaces, and the letter that stands for a space.
    """
    if is_gemma:
        return [text for text in CORPUS if "▁" not in text and " " * 32 not in text]
    return [text for text in CORPUS if "\u1f5e" not in text]


def test_ids_equal_llama_cpp(smollm: Tokenizer, gemma: Tokenizer) -> None:
    assert len(llama_cpp_texts(False)) > 3000 and len(llama_cpp_texts(True)) > 3000
    assert _digest(smollm, llama_cpp_texts(False)) == LLAMA_CPP_SMOLLM
    assert _digest(gemma, llama_cpp_texts(True)) == LLAMA_CPP_GEMMA


def test_text_comes_back(smollm: Tokenizer, gemma: Tokenizer) -> None:
    """All but what the vocabulary cannot say: SmolLM's lacks some rare bytes, Gemma's spells a space as ▁."""
    from paceline.models.byte_alphabet import letters

    known = set(smollm.tokens)
    missing = {byte for byte, letter in enumerate(letters()) if letter not in known}
    for text in CORPUS:
        if not missing & set(text.encode()):
            assert smollm.decode(smollm.encode(text)) == text
        if "▁" not in text:
            assert gemma.decode(gemma.encode(text)) == text


def test_plain_text_never_becomes_a_control_token(smollm: Tokenizer, gemma: Tokenizer) -> None:
    for tokenizer in (smollm, gemma):
        control = set(tokenizer.control_tokens.values())
        for text in [*CORPUS, *list(tokenizer.control_tokens)[:200]]:
            assert not control & set(tokenizer.encode(text, add_bos=False))


def test_streams_are_whole_characters(smollm: Tokenizer, gemma: Tokenizer) -> None:
    for tokenizer in (smollm, gemma):
        for text in CORPUS[::3]:
            ids = tokenizer.encode(text, add_bos=False)
            stream = tokenizer.stream()
            assert "".join([*(stream.push(i) for i in ids), stream.finish()]) == tokenizer.decode(ids)


def test_ends_of_an_answer(smollm: Tokenizer, gemma: Tokenizer) -> None:
    assert smollm.eos_token_ids == {0, 2} and not smollm.adds_bos
    assert gemma.eos_token_ids == {1, 106} and gemma.adds_bos and gemma.bos_token_id == 2


_MEASURE = """
import sys, time
from pathlib import Path
start = time.perf_counter()
from paceline.models.loading import load_model_files
with load_model_files(sys.argv[1]) as model:
    model.tokenizer.encode("Hello")
seconds = time.perf_counter() - start
status = Path("/proc/self/status").read_text()  # ru_maxrss of a child starts at its parent's
print(seconds, status.split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(("model", "seconds", "mib"), [("smollm2_path", 1.0, 80), ("gemma3_path", 4.0, 300)])
def test_opening_a_model_costs_little(
    request: pytest.FixtureRequest, model: str, seconds: float, mib: float
) -> None:
    """Header and tokenizer, of the 2 s and the 2.2 times file size that a loaded model may take."""
    command = [sys.executable, "-c", _MEASURE, str(request.getfixturevalue(model))]
    runs = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(3)
    ]
    assert min(float(run[0]) for run in runs) < seconds
    assert min(int(run[1]) for run in runs) < mib * 1024
