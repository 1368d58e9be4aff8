"""The recipes by name, as the command line says it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from manylabel.recipes.finetune import PRESETS, Finetune, finetune
from manylabel.recipes.linear_probe import LinearProbe, linear_probe
from manylabel.recipes.representation_mixup import RepresentationMixup, representation_mixup
from manylabel.recipes.self_distillation import VARIANTS, SelfDistillation, self_distillation
from manylabel.recipes.settings import RecipeSettings
from manylabel.recipes.zero_shot import ZeroShot, zero_shot
from manylabel.training.run_folder import RunFolder

__all__ = ["RECIPES", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """A recipe and what it can be set to.

    Args:
        run: Trains; called with the settings.
        settings: The class of the settings.
        presets: Settings that have a name.

    Examples:
        >>> RECIPES["finetune"].presets["ml_decoder"]["epochs"]
        40
    """

    run: Callable[..., RunFolder]
    settings: type[RecipeSettings]
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


RECIPES: dict[str, Recipe] = {
    "finetune": Recipe(finetune, Finetune, PRESETS),
    "linear_probe": Recipe(linear_probe, LinearProbe),
    "representation_mixup": Recipe(representation_mixup, RepresentationMixup),
    "self_distillation": Recipe(self_distillation, SelfDistillation, VARIANTS),
    "zero_shot": Recipe(zero_shot, ZeroShot),
}
