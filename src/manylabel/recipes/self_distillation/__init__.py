"""Self-distillation: teachers of parts of the labels, trained in parallel, and a student that learns from all."""

from manylabel.recipes.self_distillation.recipe import self_distillation
from manylabel.recipes.self_distillation.settings import VARIANTS, SelfDistillation

__all__ = ["VARIANTS", "SelfDistillation", "self_distillation"]
