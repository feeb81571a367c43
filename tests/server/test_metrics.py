"""What /metrics counts is what replies say, and tools made for vLLM find its names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paceline import LLM
from paceline.server.metrics import VLLM_NAMES
from support.served import Served, serving

PROMPT = "one two three one two three one two three one two"
VLLM = (
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_sum",
    "vllm:e2e_request_latency_seconds_count",
    "vllm:request_queue_time_seconds_bucket",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
)


@pytest.fixture(scope="module")
def fresh(served_model: Path) -> Iterator[Served]:
    """A server of its own, whose counters start at zero."""
    with serving(LLM(served_model, "ngram", threads=1), metrics_compat="vllm") as served:
        yield served


def samples(served: Served) -> dict[str, float]:
    """Return the samples by name and labels, those that all have left out."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(served.get("/metrics").text):
        for sample in family.samples:
            labels = [f'{k}="{v}"' for k, v in sample.labels.items() if k not in ("engine", "model_name")]
            found[sample.name + ("{" + ",".join(labels) + "}" if labels else "")] = sample.value
    return found


def test_counters_are_the_sums_of_the_replies(fresh: Served) -> None:
    totals: dict[str, float] = {}
    lengths: list[int] = []
    for index in range(4):
        body: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 30, "temperature": 1.0, "seed": index, "n": 2}
        reply = fresh.post("/v1/completions", {**body, "ignore_eos": True, "workload": "code"}).json()
        for name, value in reply["metrics"]["speculative_decoding"].items():
            if isinstance(value, int | float):
                totals[name] = totals.get(name, 0) + value
        histogram = reply["metrics"]["speculative_decoding"]["acceptance_histogram"]
        assert sum(histogram) == reply["metrics"]["speculative_decoding"]["num_spec_steps"]
        kept = sum(length * count for length, count in enumerate(histogram))
        assert kept == reply["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"]
        lengths.append(reply["usage"]["completion_tokens"])
    fresh.wait_until_idle()
    counted = samples(fresh)
    assert totals["num_draft_tokens"] > 0
    for prefix in ("paceline", "vllm"):
        assert counted[f"{prefix}:spec_decode_num_drafts_total"] == totals["num_spec_steps"]
        assert counted[f"{prefix}:spec_decode_num_draft_tokens_total"] == totals["num_draft_tokens"]
        assert (
            counted[f"{prefix}:spec_decode_num_accepted_tokens_total"] == totals["num_accepted_draft_tokens"]
        )
        assert counted[f"{prefix}:generation_tokens_total"] == sum(lengths) == 240
        assert counted[f'{prefix}:request_success_total{{finished_reason="length"}}'] == 8
        at = [
            v
            for k, v in counted.items()
            if k.startswith(f"{prefix}:spec_decode_num_accepted_tokens_per_pos_t")
        ]
        assert sum(at) == totals["num_accepted_draft_tokens"]
    assert counted["paceline:verify_steps_total"] == totals["num_verify_steps"]
    assert counted['paceline:workload_generation_tokens_total{workload="code"}'] == 240
    assert (
        counted["paceline:inter_token_latency_seconds_count"]
        >= counted["paceline:inter_step_latency_seconds_count"]
    )
    assert counted["paceline:time_to_first_token_seconds_count"] == 8
    assert counted["paceline:num_requests_running"] == 0
    assert counted["paceline:kv_cache_usage_perc"] == 0


def test_errors_are_counted(fresh: Served) -> None:
    fresh.post("/v1/completions", {"prompt": ""})
    assert samples(fresh)['paceline:request_errors_total{code="400"}'] >= 1


def test_the_names_of_vllm(fresh: Served) -> None:
    text = fresh.get("/metrics").text
    for name in VLLM:
        assert f"\n{name}{{" in text, name
    assert all(f"paceline:{name}" in text for name in VLLM_NAMES)


def test_labels_of_clients_are_bounded(fresh: Served) -> None:
    body = {"prompt": "a", "max_tokens": 1, "temperature": 0}
    for index in range(40):
        fresh.post("/v1/completions", {**body, "workload": f"w{index}"})
    fresh.wait_until_idle()
    labels = {key for key in samples(fresh) if key.startswith("paceline:workload_generation_tokens_total")}
    assert len(labels) <= 33
    assert 'paceline:workload_generation_tokens_total{workload="other"}' in labels


def test_the_configuration_can_be_read(fresh: Served) -> None:
    config = fresh.get("/v1/config").json()
    assert config["engine"]["drafter"] == "ngram"
    assert config["speculation"]["enabled"] is True
    assert "ngram" in config["speculation"]["why"]
    assert config["server"]["max_queue"] == 256
    assert config["server"]["api_keys"] == 0


def test_the_interface_is_described(fresh: Served) -> None:
    api = fresh.get("/openapi.json").json()
    chat = api["paths"]["/v1/chat/completions"]["post"]
    assert chat["requestBody"]["required"] is True
    assert "422" not in chat["responses"]
    assert {"400", "401", "429"} <= set(chat["responses"])
    assert "prediction" in api["components"]["schemas"]["ChatRequest"]["properties"]
    page = fresh.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_tokens(fresh: Served) -> None:
    answer = fresh.post("/tokenize", {"prompt": "the rest <|im_end|>", "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert fresh.post("/detokenize", {"tokens": answer["tokens"]}).json() == {"prompt": "the rest <|im_end|>"}
    chat = fresh.post("/tokenize", {"messages": [{"role": "user", "content": "a"}]}).json()
    assert chat["count"] > 3
    assert fresh.post("/tokenize", {}).status_code == 400
    assert fresh.post("/tokenize", {"prompt": "a", "promt": "b"}).status_code == 400
    assert fresh.post("/detokenize", {"tokens": [-1]}).status_code == 400


def test_the_dashboard_asks_for_metrics_that_exist(fresh: Served) -> None:
    board = json.loads(
        (Path(__file__).resolve().parents[2] / "deploy/grafana/paceline.json").read_text("utf-8")
    )
    text = fresh.get("/metrics").text
    known = set(re.findall(r"^# TYPE (paceline:\w+) ", text, re.MULTILINE))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = {name for expression in expressions for name in re.findall(r"paceline:\w+", expression)}
    assert len(named) > 15
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} <= known
