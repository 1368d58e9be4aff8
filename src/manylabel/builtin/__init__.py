"""Models found by name, and the model and sample photos that ship with the package."""

from manylabel.builtin.models import (
    BUILTIN,
    CLIP,
    DEFAULT_MODEL,
    MODEL_FILES,
    builtin_models,
    find_model,
    local_model,
    sample_photos,
)

__all__ = [
    "BUILTIN",
    "CLIP",
    "DEFAULT_MODEL",
    "MODEL_FILES",
    "builtin_models",
    "find_model",
    "local_model",
    "sample_photos",
]
