"""What to call a model in tables: the part of its path that tells it from others."""

from pathlib import Path

__all__ = ["model_name"]


def model_name(source: str) -> str:
    """Return the last part of a model's path; that of the run, whose model lies in a folder called model.

    Examples:
        >>> model_name("runs/first/model"), model_name("runs/first"), model_name("builtin:coco80")
        ('first', 'first', 'builtin:coco80')
    """
    path = Path(source)
    return (path.parent.name if path.name == "model" else path.name) or path.name or source
