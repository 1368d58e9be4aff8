"""Data specs: one line of text, such as ``voc:PATH,split=train``, that identifies a dataset; and `load`."""

import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.yolo import find_yolo
from manylabel.data.splits import hold_out
from manylabel.errors import SpecError, list_choices
from manylabel.image_files import image_names
from manylabel.images import IMAGE_ENDINGS
from manylabel.label_text import split_labels
from manylabel.plugins import Registry

logger = logging.getLogger(__name__)

FORMATS: Registry[str | Callable[..., ImageDataset]] = Registry(
    "manylabel.readers",
    {
        "coco": "coco:coco",
        "csv": "table:table",
        "files": "folder:files",
        "folder": "folder:folder",
        "hf": "hugging_face:hugging_face",
        "jsonl": "table:table",
        "label_studio": "label_studio:label_studio",
        "nus_wide": "nus_wide:nus_wide",
        "open_images": "open_images:open_images",
        "parquet": "table:table",
        "scenes": "scenes:scenes",
        "tsv": "table:table",
        "voc": "voc:voc",
        "xmp": "xmp:xmp",
        "yolo": "yolo:yolo",
    },
)
"""Readers by format: ours as module and function in `manylabel.data.readers`, imported on first use, or functions."""

_TABLES = {".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet"}
_TABLES |= {".jsonl": "jsonl", ".ndjson": "jsonl"}
_FILE_FORMATS = {**_TABLES, ".json": "coco", ".yaml": "yolo", ".yml": "yolo", **dict.fromkeys(IMAGE_ENDINGS, "files")}

Tags = Literal["complete", "incomplete"]

_NEXT_OPTION = re.compile(r",(?=[A-Za-z_]\w*=)")  # any other comma belongs to a path or a value
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def load(data: object, **options: object) -> ImageDataset:
    """Read a dataset from any form of it.

    Args:
        data: One of

            - a path, whose format is guessed: a table (``labels.csv``, ``.tsv``, ``.parquet``, ``.jsonl``), a COCO or
              Label Studio JSON, a VOC, COCO or YOLO folder, a folder of folders, a folder of images;
            - the name of a Hugging Face dataset, such as ``user/name``;
            - a spec ``FORMAT:PATH,option=value,...``, such as ``coco:~/coco,split=val2014``;
            - a list of ``(path, tags)``, where tags are a list of names or a text as in a table (``cat|dog``); or a
              list of paths alone, without labels;
            - a pandas or polars DataFrame, read like a table;
            - a pair ``(images, targets)`` of paths, or of an array or tensor of images, and a matrix of 1, 0 and -1;
            - an `ImageDataset`.
        options: Options of the format's reader (see its function in `manylabel.data`), of `hold_out`
            (``val_fraction``, ``part``, ``seed``, ``limit``) and of `relabel` (``rename``, ``drop``, ``tags``). They
            take precedence over those in a spec.

    Returns:
        The dataset.

    Raises:
        SpecError: The format cannot be guessed, or a format, option or value is unknown; the message lists those known.
        DataError: The dataset cannot be read.

    Examples:
        >>> load([("a.jpg", ["cat", "sofa"]), ("b.jpg", ["dog"])], images=".").labels.names
        ('cat', 'dog', 'sofa')
        >>> load("vok:photos")
        Traceback (most recent call last):
        manylabel.errors.SpecError: no format 'vok' (in 'vok:photos'); did you mean 'voc'? Available: ...
    """
    reader, source, given = _open(data)
    where = f"(in {data!r})" if isinstance(data, str) else "of this dataset"
    known = _options(reader) | _options(relabel) | _options(hold_out)
    values: dict[str, Any] = {}
    for name, value in (given | options).items():
        if name not in known:
            raise SpecError(f"no option {name!r} {where}; {list_choices(name, known, at_most=len(known))}")
        values[name] = _convert(value, known[name], what=f"{name} {where}") if isinstance(value, str) else value
    result: Any = source
    if isinstance(source, str):
        first = next(iter(_options(reader, skip=0).values()))
        result = _convert(source, first, what=f"the part after the colon {where}")
    for step in (reader, relabel, hold_out):
        result = step(result, **{name: values[name] for name in _options(step) if name in values})
    return cast("ImageDataset", result)


def find_reader(name: str) -> Callable[..., ImageDataset]:
    """Import the reader of a format.

    Examples:
        >>> find_reader("csv").__name__
        'table'
    """
    home = FORMATS[name]
    reader: Callable[..., ImageDataset] = (
        resolve_name(f"manylabel.data.readers.{home}") if isinstance(home, str) else home
    )
    return reader


def relabel(
    dataset: ImageDataset,
    *,
    rename: Mapping[str, str] | str | None = None,
    drop: Sequence[str] | str | None = None,
    tags: Tags = "complete",
) -> ImageDataset:
    """Rename, merge and drop labels, or declare them incomplete.

    Args:
        dataset: The images and their labels.
        rename: New name of some labels; labels of the same new name are merged. In a spec: ``old:new|old2:new2``, where
            ``|``, ``:`` and ``%`` inside a name are written ``%7C``, ``%3A`` and ``%25``.
        drop: Labels to drop, by their names before renaming; in a spec, joined by ``|``.
        tags: ``"incomplete"`` if tags may be missing: training then treats absent labels as unknown, and images have
            any number of labels, even if the data list one each. Validation still counts them as absent.

    Raises:
        LabelError: There is no such label.
        SpecError: `rename` is a text of another form, or `tags` is neither.

    Examples:
        >>> dataset = load([("a.jpg", ["Cat", "sofa"]), ("b.jpg", ["cat", "todo"])], images=".")
        >>> relabel(dataset, rename="Cat:cat", drop="todo").labels.names
        ('cat', 'sofa')
    """
    if isinstance(rename, str):
        pairs = [pair.partition(":") for pair in rename.split("|")]
        if not all(old and new for old, _, new in pairs):
            raise SpecError(f"rename must be old:new, several joined by |, got {rename!r}")
        rename = {split_labels(old)[0]: split_labels(new)[0] for old, _, new in pairs}
    dropped = set(split_labels(drop) if isinstance(drop, str) else drop or ())
    for name in dropped:
        dataset.labels.index(name)
    if dropped:
        dataset = dataset.select_labels([name for name in dataset.labels if name not in dropped])
    if tags not in get_args(Tags):
        raise SpecError(f"tags cannot be {tags!r}; {list_choices(tags, get_args(Tags))}")
    if tags == "incomplete":
        dataset = replace(dataset, incomplete=True, single_label=False)
    return dataset.rename_labels(rename) if rename else dataset


def spec_path(spec: str) -> str:
    """Return the path in a spec.

    Raises:
        SpecError: The format is unknown, or there is no path.

    Examples:
        >>> spec_path("nus_wide:NUS-WIDE,labels=1006")
        'NUS-WIDE'
    """
    return _parse(spec)[1]


def _open(data: object) -> tuple[Callable[..., ImageDataset], object, dict[str, str]]:
    """Return the reader of some data, its first argument, and options as text."""
    if isinstance(data, ImageDataset):
        return _pass_on, data, {}
    if isinstance(data, str):
        name, path, given = _parse(data)
        return find_reader(name), path, given
    if isinstance(data, Path):
        name, path = _guess(str(data))
        return find_reader(name), Path(path), {}
    from manylabel.data.readers import memory

    reader, source = memory.open_objects(data)
    return reader, source, {}


def _pass_on(dataset: ImageDataset, *, split: str | None = None) -> ImageDataset:
    return dataset if split is None else dataset.split(split)


def _parse(spec: str) -> tuple[str, str, dict[str, str]]:
    """Split a spec into format, path and options as text; the format of a bare path is guessed."""
    if not spec.strip():
        raise SpecError(f"the name of the data is empty. {_spec_form('labels.csv')}")
    head, *pairs = _NEXT_OPTION.split(spec)
    name, colon, path = head.partition(":")
    if not colon or (name not in FORMATS and Path(head).expanduser().exists()):
        name, path = _guess(head)
    elif name not in FORMATS:
        raise SpecError(f"no format {name!r} (in {spec!r}); {list_choices(name, FORMATS, at_most=len(FORMATS))}")
    elif not path:
        raise SpecError(f"nothing after the colon in {spec!r}; write {name}:PATH")
    given: dict[str, str] = {}
    for pair in pairs:
        option, _, text = pair.partition("=")
        if option in given:
            raise SpecError(f"option {option!r} is given twice in {spec!r}; remove one")
        given[option] = text
    return name, path, given


def _guess(text: str) -> tuple[str, str]:
    """Return the format and path of a file, a folder or a Hugging Face dataset."""
    path = Path(text).expanduser()
    if set(text) & set("*?[") and not path.exists():
        return "files", text
    is_file = path.suffix.lower() in _FILE_FORMATS or path.parent.is_dir()
    if not path.exists() and not is_file and _HUB_NAME.fullmatch(text):
        return "hf", text
    if not path.exists():
        near = list_choices(path.name, (each.name for each in path.parent.iterdir())) if path.parent.is_dir() else ""
        raise SpecError(f"{text!r} does not exist{f'; {near}' if near else ''}. {_spec_form(text)}")
    if path.is_dir():
        name, path = _guess_folder(path)
        looked = "ImageSets/Main (VOC), annotations/instances_*.json (COCO), data.yaml (YOLO), one table, images"
        if len(tables := _tables_in(path)) > 1:
            looked += f"; it has several tables, pass one of them: {', '.join(table.name for table in tables)}"
    else:
        name = _FILE_FORMATS.get(path.suffix.lower())
        if name == "coco" and _starts_with_list(path):
            name = "label_studio"
        looked = "a table (.csv, .tsv, .parquet, .jsonl), a COCO or Label Studio .json, a YOLO .yaml, an image"
    if name is None:
        raise SpecError(f"cannot guess the format of {text!r}; looked for {looked}. {_spec_form(text)}")
    logger.info("reading %s as %s:%s", text, name, path)
    return name, str(path)


def _starts_with_list(path: Path) -> bool:
    """Return whether a JSON file is a list, as Label Studio's are; COCO's are objects."""
    with path.open("rb") as file:
        return file.read(100).lstrip().startswith(b"[")


def _spec_form(text: str) -> str:
    return f"In full: FORMAT:PATH, such as csv:{text}; formats: {', '.join(FORMATS)}"


def _guess_folder(folder: Path) -> tuple[str | None, Path]:
    """Guess the format of a folder by its content, and the path of its data."""
    years = [folder, *folder.glob("VOC*"), *folder.glob("VOCdevkit/VOC*")]
    if any((year / "ImageSets" / "Main").is_dir() for year in years):
        return "voc", folder
    if any((folder / "annotations").glob("instances_*.json")):
        return "coco", folder
    if find_yolo(folder) is not None:
        return "yolo", folder
    if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
        return "hf", folder
    if tables := _tables_in(folder):
        return (_TABLES[tables[0].suffix.lower()], tables[0]) if len(tables) == 1 else (None, folder)
    if next(image_names(folder, quiet=True), None) is None:
        return None, folder
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    has_labels = sum(entry.is_dir() for entry in entries) > 1
    has_images = any(entry.suffix.lower() in IMAGE_ENDINGS for entry in entries)
    return "folder" if has_labels and not has_images else "files", folder


def _tables_in(folder: Path) -> list[Path]:
    """Return the tables of a folder; text files are mostly notes."""
    return sorted(entry for entry in folder.glob("[!.]*") if entry.suffix.lower() in _TABLES.keys() - {".txt"})


def _options(function: Callable[..., ImageDataset], *, skip: int = 1) -> dict[str, Any]:
    """Return the annotations of the parameters, except the first `skip`; one without annotation takes a text."""
    hints = get_type_hints(function)
    return {name: hints.get(name, str) for name in list(inspect.signature(function).parameters)[skip:]}


def _convert(text: str, annotation: Any, *, what: str) -> Any:  # noqa: ANN401 - any annotation, any value
    """Convert text to one of the annotated types by msgspec's rules; for example ``1`` and ``true`` are true."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if NoneType in kinds and text.lower() == "none":
        return None
    if Path in kinds:
        return Path(text).expanduser() if text.startswith("~") or str not in kinds else text
    try:
        return msgspec.convert(text, reduce(or_, (kind for kind in kinds if kind is not NoneType)), strict=False)
    except msgspec.ValidationError:
        choices = [str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
        if choices:
            raise SpecError(f"{what} cannot be {text!r}; {list_choices(text, choices)}") from None
        words = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "none"}
        wanted = " or ".join(word for kind, word in words.items() if kind in kinds)
        raise SpecError(f"{what} must be {wanted}, got {text!r}") from None
