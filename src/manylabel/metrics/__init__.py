"""Metrics: a functional core and thin stateful classes."""
