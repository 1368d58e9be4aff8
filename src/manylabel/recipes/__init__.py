"""Recipes: one training procedure per file, read top to bottom."""
