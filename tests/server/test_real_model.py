"""The examples of the documents, and what clients rely on, against the server with the real model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline import LLM, SamplingParams
from support.served import Served, serving

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.real_model

ROOT = Path(__file__).resolve().parents[2]
SERVING = ROOT / "docs" / "serving.md"
CURLS = [
    (path.name, command)
    for path in (ROOT / "README.md", SERVING)
    for command in re.findall(
        r"^\$ (curl .*?)\n```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
]
MESSAGES: list[Any] = [{"role": "user", "content": "Name three colours of the rainbow."}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def real(smollm2_path: Path) -> Iterator[Served]:
    with serving(LLM(smollm2_path, threads=1), model_names=("smollm2-135m",)) as served:
        yield served


@pytest.fixture
def client(real: Served) -> Iterator[Any]:
    with openai.OpenAI(base_url=real.url + "/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_replies_equal_those_of_the_library(real: Served, smollm2_path: Path, client: Any) -> None:
    llm = LLM(smollm2_path, "none", threads=1)
    for params in ({"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95, "seed": 7}):
        (whole,) = llm.chat(MESSAGES, SamplingParams(**params, max_tokens=24))
        reply = client.chat.completions.create(
            model="smollm2-135m",
            messages=MESSAGES,
            max_tokens=24,
            extra_body={"return_token_ids": True},
            **params,
        )
        assert reply.choices[0].message.content == whole.outputs[0].text
        assert tuple(reply.choices[0].token_ids) == whole.outputs[0].token_ids


def test_streams_schemas_calls_and_predictions(client: Any) -> None:
    asked: dict[str, Any] = {
        "model": "smollm2-135m",
        "messages": MESSAGES,
        "max_tokens": 40,
        "temperature": 0,
    }
    whole = client.chat.completions.create(**asked).choices[0].message.content
    stream = client.chat.completions.create(**asked, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == whole
    drafted = client.chat.completions.create(**asked, prediction={"type": "content", "content": whole})
    assert drafted.choices[0].message.content == whole
    assert drafted.usage.completion_tokens_details.accepted_prediction_tokens > 20
    form = {"type": "json_schema", "json_schema": {"name": "town", "schema": SCHEMA}}
    reply = client.chat.completions.create(**asked, response_format=form)
    if reply.choices[0].finish_reason == "stop":
        assert set(json.loads(reply.choices[0].message.content)) == {"city", "people"}
    tool = {"type": "function", "function": {"name": "visit", "parameters": SCHEMA}}
    choice = {"type": "function", "function": {"name": "visit"}}
    reply = client.chat.completions.create(**asked, tools=[tool], tool_choice=choice)
    assert reply.choices[0].message.tool_calls[0].function.name == "visit"
    assert reply.choices[0].message.tool_calls[0].function.arguments.startswith('{"city": "')


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(("document", "command"), CURLS)
def test_the_curl_examples_of_the_documents(real: Served, document: str, command: str) -> None:
    command = command.replace("http://127.0.0.1:8000", real.url)
    done = subprocess.run(["bash", "-c", command + " -s"], capture_output=True, text=True, check=True)
    if '"stream": true' in command:
        frames = done.stdout.strip().split("\n\n")
        assert frames[-1] == "data: [DONE]"
        assert json.loads(frames[-2][6:])["usage"]["completion_tokens"] > 0
        return
    (choice,) = json.loads(done.stdout)["choices"]
    assert choice["message"]["content"] or choice["message"]["tool_calls"]


def test_both_documents_have_examples() -> None:
    assert {document for document, _ in CURLS} == {"README.md", "serving.md"}


def test_the_python_example_of_the_guide(real: Served) -> None:
    (body,) = re.findall(
        r"^```python\n(.*?)^```", SERVING.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    body = body.replace("http://127.0.0.1:8000", real.url).replace(
        "    messages=", "    max_tokens=8, messages="
    )
    names: dict[str, Any] = {}
    exec(body, names)
    names["client"].close()
    assert names["reply"].choices[0].message.content
