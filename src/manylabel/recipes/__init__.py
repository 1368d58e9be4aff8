"""Recipes: verbs, read top to bottom, from a data spec to a trained model."""

from manylabel.recipes.finetune import PRESETS, Finetune, finetune
from manylabel.recipes.linear_probe import LinearProbe, linear_probe
from manylabel.recipes.names import RECIPES, Recipe
from manylabel.recipes.reporting import Reporter
from manylabel.recipes.representation_mixup import RepresentationMixup, representation_mixup
from manylabel.recipes.self_distillation import VARIANTS, SelfDistillation, self_distillation
from manylabel.recipes.sets import TrainAndVal, open_sets
from manylabel.recipes.unseen import NAMED_SPLITS, choose_unseen
from manylabel.recipes.zero_shot import ZeroShot, judge_unseen, zero_shot

__all__ = [
    "NAMED_SPLITS",
    "PRESETS",
    "RECIPES",
    "VARIANTS",
    "Finetune",
    "LinearProbe",
    "Recipe",
    "Reporter",
    "RepresentationMixup",
    "SelfDistillation",
    "TrainAndVal",
    "ZeroShot",
    "choose_unseen",
    "finetune",
    "judge_unseen",
    "linear_probe",
    "open_sets",
    "representation_mixup",
    "self_distillation",
    "zero_shot",
]
