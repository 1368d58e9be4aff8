"""Models by name (folders, runs, ``builtin:NAME`` and repositories on the Hugging Face hub), and sample photos."""

from pathlib import Path

from manylabel.errors import ModelFormatError, list_choices

BUILTIN = "builtin:"
CLIP = "clip:"
DEFAULT_MODEL = "builtin:everyday"
"""Default model: the 80 labels of COCO."""

MODEL_FILES = ("model.safetensors", "config.json", "labels.json")
"""Files of a model folder."""

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
        name: Model or run folder, or ``builtin:NAME``.

    Returns:
        The folder; None if the name may be that of a repository on the hub.

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
                f"no model {str(name)!r} ships with this version; {choices}; or pass a model folder (--model)"
            )
        return folder
    path = Path(name)
    if not path.is_dir():
        return None
    is_run = not (path / "config.json").is_file() and (path / "model" / "config.json").is_file()
    return path / "model" if is_run else path


def find_model(name: str | Path, *, revision: str | None = None) -> Path:
    """Return the folder of a model, downloaded if it is on the hub.

    Args:
        name: Model or run folder, ``"builtin:everyday"``, or a repository on the hub (``"owner/name"``).
        revision: Branch, tag or commit of a repository.

    Returns:
        The folder; for a repository, in the hub's cache.

    Raises:
        ModelFormatError: There is no such model, or the hub cannot be reached.
    """
    found = local_model(name)
    if found is not None:
        return found
    path, text = Path(name), str(name)
    if path.is_file():
        raise ModelFormatError(f"{text!r} is a file; pass the folder of the model or run that it was exported from")
    if path.parent.name and path.parent.is_dir():  # a mistyped folder is not looked for on the hub
        siblings = [folder.name for folder in path.parent.iterdir() if folder.is_dir()]
        choices = f"; {list_choices(path.name, siblings)} (in {path.parent})" if siblings else ""
        raise ModelFormatError(f"there is no model {text!r}{choices}")
    if isinstance(name, Path) or text.count("/") != 1 or text.startswith((".", "/", "~")):
        raise ModelFormatError(f"{text!r} is neither a local folder nor a model on the hub (owner/name)")
    return _download(text, revision)


def sample_photos() -> list[Path]:
    """Return sample photos with a free licence: an astronaut, a cat and a cup of coffee (see LICENCE.md next to them).

    Examples:
        >>> [path.name for path in sample_photos()]
        ['astronaut.jpg', 'chelsea.jpg', 'coffee.jpg']
    """
    return sorted((FOLDER / "sample_photos").glob("*.jpg"))


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(MODEL_FILES)))
    except HFValidationError as error:
        raise ModelFormatError(f"{name!r} is neither a local folder nor a model on the hub (owner/name)") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelFormatError(
            f"{name!r} is not a local folder and could not be downloaded from the hub ({reason}); check the name and "
            "the network"
        ) from error
