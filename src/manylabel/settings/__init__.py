"""Settings of all recipes: defaults, limits and help texts; imports no torch."""

from manylabel.settings.parts import DataSettings, LoopSettings, LossName, ModelSettings, RecipeSettings
from manylabel.settings.recipes import (
    PRESETS,
    RECIPE_SETTINGS,
    Finetune,
    Probe,
    RepresentationMixup,
    SelfDistillation,
    ZeroShot,
)
from manylabel.settings.schema import (
    Field,
    build,
    check,
    parse_yaml,
    read_flags,
    read_settings,
    read_yaml,
    settings_fields,
    to_dict,
    to_yaml,
)

__all__ = [
    "PRESETS",
    "RECIPE_SETTINGS",
    "DataSettings",
    "Field",
    "Finetune",
    "LoopSettings",
    "LossName",
    "ModelSettings",
    "Probe",
    "RecipeSettings",
    "RepresentationMixup",
    "SelfDistillation",
    "ZeroShot",
    "build",
    "check",
    "parse_yaml",
    "read_flags",
    "read_settings",
    "read_yaml",
    "settings_fields",
    "to_dict",
    "to_yaml",
]
