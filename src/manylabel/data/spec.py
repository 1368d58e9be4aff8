"""Data specs: one line of text, such as ``voc:PATH,split=train``, that identifies a dataset."""

import inspect
import re
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from manylabel.data.dataset import ImageDataset
from manylabel.data.splits import hold_out
from manylabel.errors import SpecError, list_choices

__all__ = ["FORMATS", "find_reader", "load", "spec_path"]

FORMATS: dict[str, str | Callable[..., ImageDataset]] = {
    "coco": "coco:coco",
    "csv": "table:table",
    "files": "folder:files",
    "folder": "folder:folder",
    "hf": "hugging_face:hugging_face",
    "jsonl": "table:table",
    "nus_wide": "nus_wide:nus_wide",
    "open_images": "open_images:open_images",
    "parquet": "table:table",
    "scenes": "scenes:scenes",
    "tsv": "table:table",
    "voc": "voc:voc",
}
"""The reader of each format: a module of `manylabel.data.readers` and its function, imported on first use, or any
function that returns an `ImageDataset`."""

_NEXT_OPTION = re.compile(r",(?=[A-Za-z_]\w*=)")  # any other comma belongs to a path or a value


def find_reader(name: str) -> Callable[..., ImageDataset]:
    """Import the reader of a format.

    Examples:
        >>> find_reader("csv").__name__
        'table'
    """
    home = FORMATS[name]
    if not isinstance(home, str):
        return home
    module, _, function = home.partition(":")
    reader: Callable[..., ImageDataset] = getattr(import_module(f"manylabel.data.readers.{module}"), function)
    return reader


def load(spec: str) -> ImageDataset:
    """Read the dataset of a spec.

    A spec is ``FORMAT:PATH,option=value,...``. Options are those of the format's reader and of `hold_out`:
    ``val_fraction``, ``part``, ``seed`` and ``limit``.

    Args:
        spec: Such as ``coco:~/coco,split=val2014`` or ``folder:photos,val_fraction=0.2,part=train``.

    Returns:
        The dataset.

    Raises:
        SpecError: The format, an option or a value is unknown; the message lists the known ones.
        DataError: The dataset cannot be read.

    Examples:
        >>> load("vok:photos")
        Traceback (most recent call last):
        manylabel.errors.SpecError: no format 'vok' (in 'vok:photos'); did you mean 'voc'? There is: ...
    """
    reader, path, given = _parse(spec)
    reader_options, shared_options = _options(reader, skip=1), _options(hold_out, skip=1)
    known = reader_options | shared_options
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in known:
            raise SpecError(f"no option {name!r} (in {spec!r}); {list_choices(name, known, at_most=len(known))}")
        values[name] = _convert(text, known[name], what=f"{name} (in {spec!r})")
    first = next(iter(_options(reader, skip=0).values()))
    dataset = reader(
        _convert(path, first, what=f"the part after the colon (in {spec!r})"),
        **{name: value for name, value in values.items() if name in reader_options},
    )
    return hold_out(dataset, **{name: value for name, value in values.items() if name in shared_options})


def spec_path(spec: str) -> str:
    """Return the path in a spec.

    Raises:
        SpecError: The format is unknown, or there is no path.

    Examples:
        >>> spec_path("nus_wide:NUS-WIDE,labels=1006")
        'NUS-WIDE'
    """
    return _parse(spec)[1]


def _parse(spec: str) -> tuple[Callable[..., ImageDataset], str, dict[str, str]]:
    """Split a spec into reader, path and options as text."""
    name, colon, rest = spec.partition(":")
    if not colon:
        raise SpecError(
            f"a data spec is FORMAT:PATH, got {spec!r}; {list_choices(spec, FORMATS, at_most=len(FORMATS))}"
        )
    if name not in FORMATS:
        raise SpecError(f"no format {name!r} (in {spec!r}); {list_choices(name, FORMATS, at_most=len(FORMATS))}")
    path, *pairs = _NEXT_OPTION.split(rest)
    if not path:
        raise SpecError(f"nothing after the colon in {spec!r}; write {name}:PATH")
    given: dict[str, str] = {}
    for pair in pairs:
        option, _, text = pair.partition("=")
        if option in given:
            raise SpecError(f"option {option!r} is given twice in {spec!r}; remove one")
        given[option] = text
    return find_reader(name), path, given


def _options(function: Callable[..., ImageDataset], *, skip: int) -> dict[str, Any]:
    """Return the annotations of the parameters, except the first `skip`."""
    hints = get_type_hints(function)
    return {name: hints[name] for name in list(inspect.signature(function).parameters)[skip:]}


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
