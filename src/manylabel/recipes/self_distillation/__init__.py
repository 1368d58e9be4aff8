"""Self-distillation: teachers on subsets of the labels, trained in parallel, and a student that distils them."""

from manylabel.recipes.self_distillation.recipe import self_distillation

__all__ = ["self_distillation"]
