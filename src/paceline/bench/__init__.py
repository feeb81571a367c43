"""Measuring drafters on real prompts: what to ask, how to run it in turns, how to report it."""
