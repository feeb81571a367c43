"""The vocabulary all tiny models share: byte-level BPE with 320 tokens, chat marks and a chat template."""

from __future__ import annotations

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS_ID = 1
EOS_ID = 2

MERGES = [
    "Ġ t", "h e", "Ġ a", "i n", "Ġt he", "r e", "o n", "e r", "Ġ s", "a t", "Ġ w", "e n", "Ġ o",
    "o r", "e s", "i s", "a n", "i t", "Ġ c", "o u", "n d", "Ġ b", "Ġa nd", "in g", "Ġ f", "a r",
    "e d", "Ġ p", "a l", "Ġt o", "Ġ m", "l e", "r o", "Ġ in", "i c", "Ġ d", "Ġo f", "Ġ h", "s t",
    "Ġ is", "Ġ l", "v e", "Ġ n", "Ġ re", "u r", "Ġ g", "Ġ e", "l l", "Ġ on", "e l", "Ġs t", "i on",
    "c h", "u n", "o w", "a s", "Ġw h", "i m", "Ġ y", "Ġy ou", "Ġ Ġ",
]  # fmt: skip

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_letters() -> list[str]:
    """Return the printable letter that stands for each byte (the GPT-2 alphabet)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(others)) for byte in range(256)]


TOKENS = [*SPECIAL_TOKENS, *byte_letters(), *(merge.replace(" ", "") for merge in MERGES)]
TOKEN_TYPES = [3] * len(SPECIAL_TOKENS) + [1] * (len(TOKENS) - len(SPECIAL_TOKENS))
VOCAB_SIZE = len(TOKENS)
