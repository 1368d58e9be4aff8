"""Recipes: from a data spec to a trained model."""

from manylabel.recipes.finetune import finetune
from manylabel.recipes.probe import probe, representation_mixup
from manylabel.recipes.recipe import Recipe
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.self_distillation import self_distillation
from manylabel.recipes.setup import Parts, Setup, TrainAndVal, open_sets
from manylabel.recipes.train import RECIPES, train
from manylabel.recipes.unseen import NAMED_SPLITS, choose_unseen, evaluate_unseen
from manylabel.recipes.zero_shot import zero_shot
from manylabel.settings import PRESETS, Finetune, Probe, RepresentationMixup, SelfDistillation, ZeroShot

__all__ = [
    "NAMED_SPLITS",
    "PRESETS",
    "RECIPES",
    "Finetune",
    "Parts",
    "Probe",
    "Recipe",
    "Reporter",
    "RepresentationMixup",
    "SelfDistillation",
    "Setup",
    "TrainAndVal",
    "ZeroShot",
    "choose_unseen",
    "evaluate_unseen",
    "finetune",
    "open_sets",
    "probe",
    "representation_mixup",
    "self_distillation",
    "train",
    "zero_shot",
]
