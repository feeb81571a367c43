"""OpenVINO GenAI, which builds its graph from a GGUF file itself (or reads an OpenVINO model folder)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from peering.protocol import Generation, PeerSettings, PeerUnavailableError, spread_tokens

LOOKUP_TOKENS = 4
LOOKUP_NGRAM = 3


class OpenVinoPeer:
    """One ``LLMPipeline`` on the CPU; a second one with prompt lookup is opened when first asked for."""

    def __init__(self, settings: PeerSettings) -> None:
        try:
            import numpy
            import openvino
            import openvino_genai
        except ImportError as error:
            raise PeerUnavailableError(f"openvino-genai is not installed ({error})") from error
        self._np: Any = numpy
        self._ov: Any = openvino
        self._genai: Any = openvino_genai
        self._settings = settings
        self._pipelines = {False: self._open(lookup=False)}

    def _open(self, lookup: bool) -> Any:
        scheduler = self._genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False  # or a repeat would find its own prompt already processed
        options: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": self._settings.threads,
            "scheduler_config": scheduler,
        }
        if lookup:
            options["prompt_lookup"] = True
        try:
            return self._genai.LLMPipeline(self._settings.model, "CPU", **options)
        except RuntimeError as error:
            last = str(error).strip().splitlines()[-1]
            raise PeerUnavailableError(f"OpenVINO GenAI cannot read this model: {last}") from error

    def describe(self) -> dict[str, str]:
        """Return the package version and the precision the CPU plug-in computes in."""
        core = self._ov.Core()
        return {
            "version": self._genai.__version__,
            "system": f"{core.get_property('CPU', 'FULL_DEVICE_NAME')}; "
            f"{', '.join(core.get_property('CPU', 'OPTIMIZATION_CAPABILITIES'))}",
        }

    def forward(self, num_rows: int, depth: int, repeats: int) -> list[float]:
        """Not to be had: the pipeline never shows the logits of several rows."""
        raise PeerUnavailableError("OpenVINO GenAI has no forward with logits for every row")

    def prompt(self, num_tokens: int, repeats: int) -> list[float]:
        """See :class:`peering.protocol.Peer`; one token is generated, the shortest the pipeline does."""
        tokens = spread_tokens(num_tokens, 32000)
        return [self.generate(tokens, 1, ()).seconds for _ in range(repeats)]

    def generate(
        self, prompt: Sequence[int], max_tokens: int, eos: Sequence[int], speculate: bool = False
    ) -> Generation:
        """See :class:`peering.protocol.Peer`; speculation is the pipeline's prompt lookup."""
        if speculate not in self._pipelines:
            self._pipelines[speculate] = self._open(lookup=speculate)
        config = self._genai.GenerationConfig(max_new_tokens=max_tokens, do_sample=False)
        config.stop_token_ids = set(eos)
        config.ignore_eos = not eos
        if speculate:
            config.num_assistant_tokens = LOOKUP_TOKENS
            config.max_ngram_size = LOOKUP_NGRAM
        ids = self._np.array([prompt], dtype=self._np.int64)
        inputs = self._genai.TokenizedInputs(self._ov.Tensor(ids), self._ov.Tensor(self._np.ones_like(ids)))
        begin = time.perf_counter()
        reply = self._pipelines[speculate].generate(inputs, config).tokens[0]
        seconds = time.perf_counter() - begin
        return Generation(tuple(int(t) for t in reply if t not in set(eos)), seconds)
