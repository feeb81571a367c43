"""Measured costs, the controller that chooses drafts by them, and the watch over what it relies on."""
