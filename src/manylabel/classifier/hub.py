"""Models on the Hugging Face hub: the same folder, in a repository."""

from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from manylabel.builtin import local_model
from manylabel.classifier.model_folder import MODEL_FILES
from manylabel.errors import ModelFormatError

__all__ = ["download_model", "find_model", "upload_model"]


def find_model(name: str | Path, *, revision: str | None = None) -> Path:
    """Return the folder of a model, whatever names it: the one place that resolves MODEL.

    Args:
        name: A model's folder, the folder of a run, ``"builtin:coco80"``, or a repository on the hub.
        revision: A branch, tag or commit of a repository.

    Returns:
        The folder.

    Raises:
        ModelFormatError: There is no such model, or the hub cannot be reached.
    """
    return local_model(name) or download_model(str(name), revision=revision)


def download_model(name: str, *, revision: str | None = None) -> Path:
    """Return the folder of a model from the hub, downloaded once and kept in the hub's cache.

    Args:
        name: The repository, such as ``"someone/street-tagger"``.
        revision: A branch, tag or commit.

    Returns:
        The folder.

    Raises:
        ModelFormatError: There is no such folder and no such repository, or the hub cannot be reached.
    """
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(MODEL_FILES)))
    except HFValidationError as error:
        raise ModelFormatError(f"{name!r} is neither a folder here nor a name on the hub (owner/name)") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelFormatError(
            f"{name!r} is no folder here and could not be fetched from the hub ({reason}); check name and network"
        ) from error


def upload_model(folder: Path, name: str, *, private: bool, message: str) -> str:
    """Upload a model folder to the hub.

    Args:
        folder: A folder that `write_model` wrote.
        name: The repository; made when it is not there.
        private: Whether only its owner can see it.
        message: The commit message.

    Returns:
        The address of the commit.
    """
    hub = HfApi()
    hub.create_repo(name, private=private, exist_ok=True)
    commit = hub.upload_folder(folder_path=folder, repo_id=name, commit_message=message)
    return str(commit.commit_url)
