"""Recipes by name."""

from typing import Any

from manylabel.recipes.finetune import finetune
from manylabel.recipes.probe import probe
from manylabel.recipes.recipe import Recipe
from manylabel.recipes.representation_mixup import representation_mixup
from manylabel.recipes.self_distillation import self_distillation
from manylabel.recipes.zero_shot import zero_shot

__all__ = ["RECIPES"]

RECIPES: dict[str, Recipe[Any]] = {
    "probe": probe,
    "finetune": finetune,
    "representation_mixup": representation_mixup,
    "self_distillation": self_distillation,
    "zero_shot": zero_shot,
}
