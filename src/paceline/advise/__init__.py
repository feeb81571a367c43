"""Which drafter to use with a model on this machine: found by looking, measuring, and saying why."""
