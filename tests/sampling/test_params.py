"""Every wrong setting is a ConfigError that names field, value and the way out."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from paceline.config import EngineConfig, SpecConfig
from paceline.errors import ConfigError
from paceline.sampling.params import SamplingParams


def test_defaults_are_those_of_vllm() -> None:
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_p, params.top_k) == (1, 1.0, 1.0, 0)
    assert (params.max_tokens, params.min_tokens, params.seed, params.logprobs) == (16, 0, None, None)


def test_normal_forms() -> None:
    params = SamplingParams(stop="END", stop_token_ids=np.array([1, 2]), top_k=-1, prediction=[3, 4])
    assert params.stop_strings == ("END",)
    assert params.stop_ids == (1, 2)
    assert params.top_k == 0
    assert params.prediction == (3, 4)
    assert SamplingParams(stop=None, stop_token_ids=None).stop_strings == ()


def test_survives_copy_and_pickle() -> None:
    params = SamplingParams(stop=["a"], logit_bias={3: 1.0})
    assert copy.deepcopy(params) == pickle.loads(pickle.dumps(params)) == params


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temprature": 1.0}, r"'temprature' \(did you mean 'temperature'"),
        ({"best_of": 2}, "no setting 'best_of'"),
        ({"temperature": -0.1}, r"temperature=-0\.1"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"temperature": 1e-9}, "0 \\(greedy\\)"),
        ({"temperature": "hot"}, "temperature='hot'"),
        ({"top_p": 0.0}, "keeps no token"),
        ({"top_p": 1.5}, r"top_p=1\.5"),
        ({"top_k": -2}, "top_k=-2"),
        ({"top_k": True}, "top_k=True"),
        ({"min_p": 2}, "min_p=2"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"min_tokens": 20}, "above max_tokens=16"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**64}, "seed="),
        ({"logprobs": -1}, "logprobs=-1"),
        ({"n": 0}, "n=0"),
        ({"stop": ["a", ""]}, "not empty"),
        ({"stop": [3]}, "stop holds 3"),
        ({"stop": 3}, "stop=3"),
        ({"stop_token_ids": ["x"]}, "stop_token_ids"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"frequency_penalty": 3.0}, r"frequency_penalty=3\.0"),
        ({"presence_penalty": float("inf")}, "presence_penalty"),
        ({"logit_bias": {1: 200.0}}, r"logit_bias\[1\]"),
        ({"logit_bias": {"1": 2.0}}, "logit_bias token id"),
        ({"logit_bias": [1]}, "mapping"),
        ({"ignore_eos": 1}, "ignore_eos=1"),
        ({"num_draft_tokens": 1000}, "num_draft_tokens=1000"),
        ({"acceptance": "rejections"}, "did you mean 'rejection'"),
        ({"prediction": 5}, "prediction=5"),
    ],
)
def test_wrong_values(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SamplingParams(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 0.0, "top_p": 0.9},
        {"temperature": 0.0, "top_k": 5},
        {"temperature": 0.0, "min_p": 0.1},
        {"temperature": 0.0, "n": 2},
        {"temperature": 0.0, "acceptance": "block"},
        {"temperature": 1.0, "acceptance": "greedy"},
        {"include_stop_str_in_output": True},
        {"drafter": "none", "num_draft_tokens": 3},
        {"drafter": "none", "prediction": "text"},
    ],
    ids=str,
)
def test_settings_that_would_do_nothing(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SamplingParams(**given)


def test_spec_config() -> None:
    assert SpecConfig("none").draft_limit == 0
    assert SpecConfig("ngram").draft_limit == 7
    assert SpecConfig("ngram", 0).draft_limit == 0
    for wrong in ({"drafter": "none", "num_draft_tokens": 2}, {"drafter": ""}, {"acceptance": "lossy"}):
        with pytest.raises(ConfigError):
            SpecConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="did you mean 'num_draft_tokens'"):
        SpecConfig(num_draft_token=3)  # type: ignore[call-arg]


def test_engine_config() -> None:
    with pytest.raises(ConfigError, match="needs a row"):
        EngineConfig(max_model_len=10, max_batch_tokens=2, max_num_requests=3)
    with pytest.raises(ConfigError, match="max_model_len=1"):
        EngineConfig(max_model_len=1)
