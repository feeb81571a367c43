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
from support.promql import check_query, known_labels
from support.served import Served, serving

PROMPT = "one two three one two three one two three one two"
NAMED = {
    "spec_decode_num_drafts": ("counter", ()),
    "spec_decode_num_draft_tokens": ("counter", ()),
    "spec_decode_num_accepted_tokens": ("counter", ()),
    "spec_decode_num_accepted_tokens_per_pos": ("counter", ("position",)),
    "num_requests_running": ("gauge", ()),
    "num_requests_waiting": ("gauge", ()),
    "time_to_first_token_seconds": ("histogram", ()),
    "inter_token_latency_seconds": ("histogram", ()),
    "e2e_request_latency_seconds": ("histogram", ()),
    "request_queue_time_seconds": ("histogram", ()),
    "kv_cache_usage_perc": ("gauge", ()),
    "prefix_cache_queries": ("counter", ()),
    "prefix_cache_hits": ("counter", ()),
    "prompt_tokens": ("counter", ()),
    "generation_tokens": ("counter", ()),
    "request_success": ("counter", ("finished_reason",)),
}
"""Issue 5, section 3: the names that dashboards made for vLLM ask for, by kind and own labels. The parser
takes the ``_total`` off a counter's name.
"""
OURS = {
    "inter_step_latency_seconds": ("histogram", ()),
    "request_time_per_output_token_seconds": ("histogram", ()),
    "request_prompt_tokens": ("histogram", ()),
    "request_generation_tokens": ("histogram", ()),
    "num_preemptions": ("counter", ()),
    "request_errors": ("counter", ("code",)),
    "verify_steps": ("counter", ()),
    "draft_seconds": ("counter", ()),
    "verify_seconds": ("counter", ()),
    "drift_alarms": ("counter", ()),
    "workload_generation_tokens": ("counter", ("workload",)),
    "workload_num_draft_tokens": ("counter", ("workload",)),
    "workload_num_accepted_tokens": ("counter", ("workload",)),
    "engine_step_seconds": ("gauge", ()),
}
DASHBOARD = Path(__file__).resolve().parents[2] / "deploy/grafana/paceline.json"
COMMON_LABELS = {"model_name", "engine"}


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


def test_errors_are_counted_from_zero(fresh: Served) -> None:
    """A series that begins at 1 has no increase that Prometheus could see: the first 500 went unnoticed."""
    before = samples(fresh)
    assert before['paceline:request_errors_total{code="500"}'] == 0
    assert before['paceline:request_success_total{finished_reason="timeout"}'] == 0
    fresh.post("/v1/completions", {"prompt": ""})
    told = 'paceline:request_errors_total{code="400"}'
    assert samples(fresh)[told] == before[told] + 1


@pytest.mark.parametrize(
    ("prefix", "names"), [("vllm", NAMED), ("paceline", {**NAMED, **OURS})], ids=["vllm", "paceline"]
)
def test_every_name_has_its_kind_and_labels(
    fresh: Served, prefix: str, names: dict[str, tuple[str, tuple[str, ...]]]
) -> None:
    body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "ignore_eos": True, "workload": "code"}
    assert fresh.post("/v1/completions", body).status_code == 200
    fresh.wait_until_idle()
    families = {f.name: f for f in text_string_to_metric_families(fresh.get("/metrics").text)}
    for name, (kind, labels) in names.items():
        family = families[f"{prefix}:{name}"]
        assert family.type == kind, name
        assert family.samples, name
        assert {sample.labels["model_name"] for sample in family.samples} == {"tiny"}
        own = {label for sample in family.samples for label in sample.labels} - COMMON_LABELS - {"le"}
        assert own == set(labels), name
        if kind == "counter":
            assert {sample.name for sample in family.samples} == {f"{prefix}:{name}_total"}
    if prefix == "paceline":
        assert {name.removeprefix("paceline:") for name in families if name.startswith("paceline:")} == set(
            names
        ), "a metric without a test"


def test_without_the_flag_no_name_is_of_vllm(served_model: Path) -> None:
    with serving(LLM(served_model, "none", threads=1)) as served:
        text = served.get("/metrics").text
    assert "vllm:" not in text
    assert "paceline:num_requests_running" in text
    assert "process_resident_memory_bytes" in text


def test_latency_is_told_per_token_and_per_step(fresh: Served) -> None:
    """One gap per step, shared evenly by the tokens it brought: the sums are equal, the counts are not."""

    def read() -> dict[str, float]:
        fresh.wait_until_idle()
        figures = samples(fresh)
        names = ("inter_token_latency_seconds", "inter_step_latency_seconds")
        return {
            f"{n}_{part}": figures[f"paceline:{n}_{part}"] for n in names for part in ("sum", "count")
        } | {"steps": figures["paceline:verify_steps_total"]}

    before = read()
    body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    text = fresh.post("/v1/completions", body).json()["choices"][0]["text"]
    middle = read()
    prediction = {"prediction": {"type": "content", "content": text}}
    fresh.post("/v1/completions", {**body, **prediction, "speculative": {"drafter": "prediction"}})
    after = read()
    told = {name: after[name] - middle[name] for name in after}
    assert told["inter_step_latency_seconds_count"] == told["steps"] - 1
    assert told["steps"] < 35, "much of the prediction came true, several tokens a step"
    assert told["inter_token_latency_seconds_count"] > told["inter_step_latency_seconds_count"]
    assert told["inter_token_latency_seconds_sum"] == pytest.approx(told["inter_step_latency_seconds_sum"])
    assert middle["inter_token_latency_seconds_sum"] > before["inter_token_latency_seconds_sum"]


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
    """Names and labels alike, those of the variables too; and it shows every metric but sizes."""
    fresh.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "workload": "code"})
    fresh.wait_until_idle()
    known = known_labels(fresh.get("/metrics").text)
    board = json.loads(DASHBOARD.read_text("utf-8"))
    variables = [v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = {name for query in (*variables, *expressions) for name in check_query(query, known)}
    plain = {re.sub(r"^paceline:|_(total|bucket|sum|count)$", "", name) for name in named}
    left_out = {
        "request_prompt_tokens",
        "workload_generation_tokens",
        "request_time_per_output_token_seconds",
    }
    assert {*NAMED, *OURS} - plain == left_out
