"""Feature maps in, logits out: one head per file."""
