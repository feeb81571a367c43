"""Measuring what a model's steps cost on this machine, and keeping the figures."""
