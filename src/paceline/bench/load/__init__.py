"""Load on a server that speaks OpenAI's protocol: closed and open loops, latencies, goodput.

Read in this order: ``settings`` (what is asked), ``endpoint`` (where the server is, what it is), ``stream``
(one reply, timed), ``driver`` (many of them), ``summary`` (in numbers), ``report`` (tables and JSON).
"""
