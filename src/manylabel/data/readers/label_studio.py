"""Label Studio: the JSON export of a project whose images were labelled with Choices, boxes or other regions."""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import polars as pl

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers import layout
from manylabel.data.sources import Files
from manylabel.errors import DataError, list_choices
from manylabel.image_files import image_names
from manylabel.images import IMAGE_ENDINGS
from manylabel.page import plural
from manylabel.storage import decode_json
from manylabel.targets import Targets
from manylabel.types import LabelSpace

logger = logging.getLogger(__name__)

_UPLOADED = re.compile(r"^[0-9a-f]{8}-")  # Label Studio puts it in front of the names of uploaded files


class _Result(msgspec.Struct):
    """A control tag's answer, such as the selected choices; relations have no value."""

    type: str = ""
    from_name: str = ""
    value: dict[str, Any] = {}


class _Annotation(msgspec.Struct):
    result: list[_Result] = []
    was_cancelled: bool = False
    ground_truth: bool = False


class _Task(msgspec.Struct):
    data: dict[str, Any]
    annotations: list[_Annotation]


def label_studio(
    path: str | Path,
    *,
    images: str | Path | None = None,
    control: str | None = None,
    labels: Sequence[str] | str | Path | None = None,
) -> ImageDataset:
    """Read the JSON export of a Label Studio project.

    A label is present if all annotators of the image chose it, absent if none did, and unknown if they disagree. An
    annotation marked as ground truth overrules the others. Skipped and unlabelled tasks are left out; so are
    predictions. Labels of boxes and other regions count like choices.

    Args:
        path: The export, in the format called JSON (not JSON_MIN).
        images: Folder of the images, relative to the current folder or to `path` (default: the folder of `path`). As
            Label Studio stores addresses, images are found by the end of their paths. Uploads, which it renames, are
            found by name, anywhere in the folder.
        control: Name of the control tag, such as ``choice`` in ``<Choices name="choice">`` (default: the only one).
        labels: The labels and their order (names, names joined by ``|``, or a file with one per line), as the export
            does not contain those that nobody chose; others are ignored. Default: all that were chosen, sorted.

    Returns:
        The dataset.

    Raises:
        DataError: The file is missing or has another format, or `control` is missing or ambiguous.

    Examples:
        >>> import json, tempfile
        >>> def chose(*choices):
        ...     return {"result": [{"type": "choices", "from_name": "tags", "value": {"choices": choices}}]}
        >>> tasks = [{"data": {"image": "/data/upload/1/f00dcafe-a.jpg"}, "annotations": [chose("cat", "sofa")]}]
        >>> tasks += [{"data": {"image": "/data/upload/1/0ff1ce00-b.jpg"}, "annotations": [chose("cat"), chose()]}]
        >>> file = Path(tempfile.mkdtemp()) / "export.json"
        >>> _ = file.write_text(json.dumps(tasks))
        >>> dataset = label_studio(file)
        >>> dataset.labels_of(0), dataset.targets.dense()[1].tolist()
        (['cat', 'sofa'], [[True, True], [False, True]])
    """
    path = layout.existing(path)
    advice = "export the project from Label Studio as JSON"
    if not path.is_file():
        raise layout.wrong_format(path, "an export of Label Studio", f"it is a folder; {advice}")
    tasks = decode_json(path.read_bytes(), list[_Task], source=path, error=DataError, advice=advice)
    done = [(task, found) for task in tasks if (found := _counted(task.annotations))]
    if not done:
        raise DataError(f"{path} has {plural(len(tasks), 'task')} without annotations; label some, then export again")
    if len(done) < len(tasks):
        logger.info("%s of %s skipped: not annotated", plural(len(tasks) - len(done), "task"), path)
    control = _find_control(done, control, path)
    answers = [[_chosen(annotation, control) for annotation in found] for _, found in done]
    chosen = {name for each in answers for names in each for name in names}
    space = LabelSpace(sorted(chosen) if labels is None else layout.read_label_list(labels, folder=path.parent))
    present = [set.intersection(*each).intersection(space) for each in answers]
    unknown = [set.union(*each).intersection(space) - agreed for each, agreed in zip(answers, present, strict=True)]
    root = path.parent if images is None else layout.image_folder(images, beside=path.parent)
    targets = Targets.from_lists(
        list(map(sorted, present)), labels=space, unknown=list(map(sorted, unknown)) if any(unknown) else None
    )
    return ImageDataset(Files(root, _names([task for task, _ in done], root)), targets, space, name=path.stem)


def _counted(annotations: list[_Annotation]) -> list[_Annotation]:
    """Return the annotations that count: those of the ground truth, else all that were not skipped."""
    submitted = [each for each in annotations if not each.was_cancelled]
    return [each for each in submitted if each.ground_truth] or submitted


def _answers(annotation: _Annotation) -> Iterator[_Result]:
    """Yield the choices, and regions such as ``rectanglelabels``."""
    return (each for each in annotation.result if each.type == "choices" or each.type.endswith("labels"))


def _chosen(annotation: _Annotation, control: str | None) -> set[str]:
    answers = (each for each in _answers(annotation) if each.from_name == control)
    return {str(name) for each in answers for name in each.value.get(each.type, ())}


def _find_control(done: list[tuple[_Task, list[_Annotation]]], given: str | None, path: Path) -> str | None:
    """Return the control tag; None if no annotator chose anything."""
    names = sorted({each.from_name for _, found in done for annotation in found for each in _answers(annotation)})
    if given is None and len(names) <= 1:
        return next(iter(names), None)
    if given not in names:
        problem = "has several control tags" if given is None else f"has no answers of a control tag {given!r}"
        raise DataError(f"{path} {problem}; set control=NAME; {list_choices(given or '', names)}")
    return given


def _names(tasks: list[_Task], root: Path) -> list[str]:
    """Return the images' names: as many folders of their addresses, with or without the prefix, as find most files."""
    paths = [PurePosixPath(_address_path(task)) for task in tasks]
    plain = [path.with_name(_UPLOADED.sub("", path.name)) for path in paths]
    deepest = max(len(path.parts) for path in paths)
    candidates = [
        ["/".join(path.parts[-depth:]) for path in each] for depth in range(1, deepest + 1) for each in (paths, plain)
    ]
    names = max(candidates, key=lambda names: int(layout.are_on_disk(root, pl.Series(names)).sum()))
    missing = ~layout.are_on_disk(root, pl.Series(names))
    uploads = missing & [_UPLOADED.match(path.name) is not None for path in paths]
    if not uploads.any():
        return names
    found = _by_uploaded_name(root)
    return [
        found.get(path.name, name) if uploads[row] else name
        for row, (path, name) in enumerate(zip(plain, names, strict=True))
    ]


def _by_uploaded_name(root: Path) -> dict[str, str]:
    """Return the images in a folder by the names that uploads give them, which have no folders; only unique ones.

    Label Studio replaces spaces by underscores and removes all but letters, digits, ``-``, ``_`` and ``.``.
    """
    pairs = [
        (re.sub(r"[^-\w.]", "", PurePosixPath(name).name.strip().replace(" ", "_")), name) for name in image_names(root)
    ]
    counts = Counter(uploaded for uploaded, _ in pairs)
    return {uploaded: name for uploaded, name in pairs if counts[uploaded] == 1}


def _address_path(task: _Task) -> str:
    """Return the path in a task's image address, such as that of an upload, of a local file (``?d=``) or a bucket."""
    for value in task.data.values():
        if isinstance(value, str):
            parts = urlsplit(value)
            path = parse_qs(parts.query).get("d", [unquote(parts.path)])[-1].lstrip("/")
            if PurePosixPath(path).suffix.lower() in IMAGE_ENDINGS:
                return path
    given = str(task.data)[:100]
    raise DataError(f"no image in the data of a task, {given}; one value must be an address ending in .jpg, .png, ...")
