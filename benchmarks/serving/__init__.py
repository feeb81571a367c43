"""The parts of ``serving_bars.py``: servers as child processes, what is asked of them, the bars."""
