"""More than 3,000 strings that are hard for tokenizers, the same on every run."""

from __future__ import annotations

import random
import sys

_WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "while",
    "it's",
    "raining",
    "and",
    "we're",
    "singing",
    "don't",
    "they'll",
    "I'd",
    "you've",
]
_SENTENCES = [
    "Привет, мир! Как дела?",
    "你好，世界。今天天气很好。",
    "こんにちは世界、元気ですか？",
    "안녕하세요 세계",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "Γειά σου Κόσμε",
    "Xin chào thế giới",
    "Çok güzel, teşekkür ederim",
    "Zażółć gęślą jaźń",
    "ሰላም ልዑል",
    "ကမ္ဘာလောက",
    "გამარჯობა მსოფლიო",
    "Բարեւ աշխարհ",
    "ನಮಸ್ಕಾರ",
    "வணக்கம் உலகம்",
    "ওহে বিশ্ব",
    "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝕞𝕒𝕥𝕙 𝒻ℴ𝓃𝓉𝓈",
    "𐍈𐌰𐌹 𓀀𓁐 𒀀𒁀",
]
_EMOJI = [
    "😀",
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈",
    "👍🏽",
    "🇩🇪🇫🇷",
    "❤️",
    "🧑🏿‍🚀",
    "1️⃣",
    "☕️",
    "🤷‍♀️",
    "🏴󠁧󠁢󠁳󠁣󠁴󠁿",
    "👨🏻‍❤️‍💋‍👨🏾",
]
_CODE = [
    "def f(x: int) -> int:\n    return x**2 + 1\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
    "SELECT * FROM t WHERE a >= 10 AND b != 'x';",
    '<div class="a"><p>hi</p></div>',
    '{"k": [1, 2.5e-3, null]}',
    "if [ -z \"$X\" ]; then\r\n  echo 'no'\r\nfi",
    "x = lambda *a, **k: (a, k)  # comment",
    "#include <stdio.h>\n\n\n",
    "\\begin{equation} \\frac{a}{b} \\end{equation}",
    'fn main() { println!("{:?}", vec![1u8; 4]); }',
    "a&&b||!c==d<=e>>=f",
    "https://example.org/a?b=c&d=%20#e",
    "C:\\Users\\me\\file.txt",
    "--flag=value -x | grep -v '^#'",
]
_NUMBERS = [
    "0",
    "7",
    "42",
    "007",
    "1234567890",
    "3.14159",
    "-2.5e10",
    "1,234,567.89",
    "0xDEADBEEF",
    "½ ² ³ ① Ⅷ",
    "٣٤٥",
    "१२३",
    "１２３",
    "2026-11-29T17:44:10Z",
    "+49 (0) 30 123456",
    "12:34",
    "100%",
    "$9.99",
    "1st 2nd 3rd",
]
_SPECIAL_TEXTS = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|im_start|>user\nhi<|im_end|>",
    "<bos>",
    "<eos>",
    "<pad>",
    "<unk>",
    "<start_of_turn>user\n",
    "<end_of_turn>",
    "<unused0>",
    "<0x0A>",
    "<0xFF>",
    "<s>",
    "</s>",
    "[INST]",
    "<|eot_id|>",
    "<|im_end",
    "|im_end|>",
    "<<|im_end|>>",
    "< |im_end|>",
    "<h1>",
    "</table>",
    "<repo_name>",
    "<mask>",
    "[multimodal]",
]
_SPACES = [
    " ",
    "  ",
    "   ",
    "\t",
    "\t\t",
    "\n",
    "\n\n",
    "\n\n\n",
    "\r\n",
    "\r",
    " \n",
    "\n ",
    "\u00a0",
    "\u3000",
    "\u200b",
    "\u2009",
    "\u2028",
    "\x0b",
    "\x0c",
    "\x85",
    "\ufeff",
    "▁",
    "▁▁",
]


def tokenizer_corpus() -> list[str]:
    """Return the strings: all scripts, emoji, whitespace, code, numbers, controls, special texts."""
    rng = random.Random(20261129)
    strings = ["", *_SENTENCES, *_EMOJI, *_CODE, *_NUMBERS, *_SPECIAL_TEXTS, *_SPACES]
    strings += [chr(code) for code in range(0x180)]
    strings += [f"a{chr(code)}b {chr(code)}" for code in range(0x20)]
    strings += _one_letter_of_each_block(rng)
    strings += [
        space * count + "x" for space in (" ", "\t", "\n") for count in (*range(1, 36), 40, 63, 64, 65, 100)
    ]
    strings += [first + second + "word" for first in _SPACES for second in _SPACES]
    strings += [_random_mix(rng) for _ in range(1500)]
    strings += [_random_unicode(rng) for _ in range(400)]
    return strings


def _one_letter_of_each_block(rng: random.Random) -> list[str]:
    """Three code points out of every 256 below U+20000, surrogates and private use left out."""
    strings: list[str] = []
    for start in (*range(0x180, 0xD800, 0x100), *range(0xF900, 0x20000, 0x100)):
        chosen = rng.sample(range(start, start + 0x100), 3)
        strings.append("".join(map(chr, chosen)))
        strings += [f"x{chr(code)} " for code in chosen]
    return strings


def _random_mix(rng: random.Random) -> str:
    parts: list[str] = []
    for _ in range(rng.randint(1, 12)):
        pool = rng.choice([_WORDS, _WORDS, _SENTENCES, _EMOJI, _CODE, _NUMBERS, _SPECIAL_TEXTS])
        parts += [rng.choice(pool), rng.choice(_SPACES[:12]) if rng.random() < 0.7 else ""]
    text = "".join(parts)
    return text.upper() if rng.random() < 0.1 else text


def _random_unicode(rng: random.Random) -> str:
    codes = (
        rng.randint(0, rng.choice([0x7F, 0x7FF, 0xFFFF, sys.maxunicode])) for _ in range(rng.randint(1, 30))
    )
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
