"""Logits and targets in, a scalar out: one loss per file."""
