"""Measuring other engines beside Paceline: one worker process per engine, driven in turns by ``peers.py``.

Only the standard library is imported here, so that a worker also runs in an environment of its own.
"""
