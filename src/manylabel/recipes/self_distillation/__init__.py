"""Self-distillation: teachers of parts of the labels, trained in parallel, and a student that learns from all."""

from manylabel.recipes.self_distillation.recipe import self_distillation

__all__ = ["self_distillation"]
