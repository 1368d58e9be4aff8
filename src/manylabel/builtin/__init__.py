"""What ships inside the package, so that everything works at once: a trained model and sample photos."""

from manylabel.builtin.models import BUILTIN, DEFAULT_MODEL, builtin_models, local_model, sample_photos

__all__ = ["BUILTIN", "DEFAULT_MODEL", "builtin_models", "local_model", "sample_photos"]
