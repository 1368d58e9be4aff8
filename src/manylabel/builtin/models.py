"""Models that need no hub (folders, runs, and ``builtin:NAME`` inside the package), and sample photos."""

from pathlib import Path

from manylabel.errors import ModelFormatError, list_choices

__all__ = ["BUILTIN", "DEFAULT_MODEL", "builtin_models", "local_model", "sample_photos"]

BUILTIN = "builtin:"
DEFAULT_MODEL = "builtin:coco80"
"""Default model: the 80 labels of COCO."""

FOLDER = Path(__file__).parent


def builtin_models() -> list[str]:
    """Return the names of the models that ship inside the package.

    Examples:
        >>> all(name.startswith("builtin:") for name in builtin_models())
        True
    """
    return sorted(f"{BUILTIN}{path.parent.name}" for path in FOLDER.glob("*/config.json"))


def local_model(name: str | Path) -> Path | None:
    """Return the folder of a model on this machine.

    Args:
        name: A model's folder, the folder of a run that holds one, or ``builtin:NAME``.

    Returns:
        The folder; nothing where the name is none of these and may be one of the hub's.

    Raises:
        ModelFormatError: There is no such builtin model.

    Examples:
        >>> local_model("someone/street-tagger") is None
        True
        >>> local_model("builtin:no_such")
        Traceback (most recent call last):
        manylabel.errors.ModelFormatError: no model 'builtin:no_such' ships with this version; ...
    """
    if str(name).startswith(BUILTIN):
        folder = FOLDER / str(name).removeprefix(BUILTIN)
        if str(name) not in builtin_models():
            choices = list_choices(str(name), builtin_models())
            raise ModelFormatError(
                f"no model {str(name)!r} ships with this version; {choices}; or give a model's folder (--model)"
            )
        return folder
    path = Path(name)
    if not path.is_dir():
        return None
    is_run = not (path / "config.json").is_file() and (path / "model" / "config.json").is_file()
    return path / "model" if is_run else path


def sample_photos() -> list[Path]:
    """Return sample photos with a free licence: an astronaut, a cat and a cup of coffee (see LICENCE.md next to them).

    Examples:
        >>> [path.name for path in sample_photos()]
        ['astronaut.jpg', 'chelsea.jpg', 'coffee.jpg']
    """
    return sorted((Path(__file__).parent / "sample_photos").glob("*.jpg"))
