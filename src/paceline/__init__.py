"""Paceline: exact speculative decoding."""
