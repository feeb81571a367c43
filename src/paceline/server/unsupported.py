"""Parameters that clients know from elsewhere and this server does not honour, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

UNSUPPORTED: Mapping[str, str] = {
    "audio": "this server serves text models",
    "function_call": "the old form is not supported; use tools and tool_choice",
    "functions": "the old form is not supported; use tools and tool_choice",
    "metadata": "nothing is stored; leave it out",
    "moderation": "nothing is moderated here; leave it out",
    "prompt_cache_key": "the prefix cache needs no key; leave it out",
    "prompt_cache_options": "the prefix cache needs no options; leave it out",
    "prompt_cache_retention": "the prefix cache keeps what there is room for; leave it out",
    "response_format": "it belongs to chats; here it is called structured_outputs",
    "reasoning_effort": "no served model has such a switch; templates take chat_template_kwargs",
    "safety_identifier": "nothing is reported to anyone; leave it out, or use user",
    "service_tier": "there is one tier; leave it out, or use priority",
    "store": "nothing is stored; leave it out",
    "suffix": "filling in the middle is not supported; leave it out",
    "verbosity": "no served model has such a switch; ask for it in the prompt",
    "web_search_options": "the server makes no outside requests; leave it out",
    "guided_json": "it is called structured_outputs.json",
    "guided_regex": "it is called structured_outputs.regex",
    "guided_choice": "it is called structured_outputs.choice",
    "guided_grammar": "it is called structured_outputs.grammar",
}
"""Parameters of OpenAI's interface (and near it) that this server does not honour."""
