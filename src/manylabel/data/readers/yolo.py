"""YOLO datasets as ultralytics reads them: ``data.yaml``, ``images`` and ``labels``; image-level labels from boxes."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers import layout
from manylabel.data.sources import Files
from manylabel.errors import DataError
from manylabel.schema import parse_yaml
from manylabel.types import LabelSpace

SPLITS = ("train", "val", "valid", "test")


def yolo(path: str | Path, *, split: str | None = None) -> ImageDataset:
    r"""Read a YOLO dataset: boxes or polygons, one text file per image.

    A label is present where it has an object; an image without a text file has none.

    Args:
        path: A folder with ``data.yaml`` (``names``, ``train``, ``val``, ``test``), that file itself, or a folder with
            ``images`` and ``labels``; label names are then the lines of ``classes.txt``.
        split: Name of the split (default: all).

    Returns:
        The dataset; `areas` holds the fraction of the image that a label's largest box covers.

    Raises:
        DataError: A file, folder or split is missing or cannot be understood.

    Examples:
        >>> from tempfile import mkdtemp
        >>> root = Path(mkdtemp())
        >>> for name, text in (("data.yaml", "train: images\nnames: [cat, dog]"), ("labels/a.txt", "1 .5 .5 .5 .2")):
        ...     (root / name).parent.mkdir(exist_ok=True)
        ...     _ = (root / name).write_text(text)
        >>> (root / "images").mkdir()
        >>> (root / "images/a.jpg").touch()
        >>> dataset = yolo(root)
        >>> dataset.labels_of(0), dataset.areas.toarray().round(2).tolist()
        (['dog'], [[0.0, 0.10000000149011612]])
    """
    path = layout.existing(path)
    file = find_yolo(path)
    if file is None:
        raise layout.wrong_format(path, "a YOLO dataset", "neither data.yaml nor images and labels")
    root = file if file.is_dir() else file.parent
    names, folders = _without_config(root) if file.is_dir() else _read_config(file)
    labels, wanted = LabelSpace(names), layout.choose_splits(folders, split, of=path)
    parts = {name: _read(root, places, labels) for name, places in wanted.items()}
    return ImageDataset.join(parts, name=root.absolute().name)


def find_yolo(path: Path) -> Path | None:
    """Return the configuration of a YOLO dataset, the folder itself if it has none, or None for another format.

    Examples:
        >>> find_yolo(Path("src")) is None
        True
    """
    if path.is_file():
        return path if path.suffix in (".yaml", ".yml") else None
    files = [*path.glob("data.y*ml"), *path.glob("dataset.y*ml")]
    if files:
        return files[0]
    has_both = any((folder / "images").is_dir() and (folder / "labels").is_dir() for folder in (path, path / "train"))
    return path if has_both else None


def _read_config(file: Path) -> tuple[list[str], dict[str, list[Path]]]:
    """Return the label names, and the folders or lists of images of each split."""
    try:
        config: Any = parse_yaml(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"cannot read {file}: {' '.join(str(error).split())}") from error
    names = config.get("names") if isinstance(config, dict) else None
    if isinstance(names, dict):
        names = [names.get(position) for position in range(len(names))]
    if not isinstance(names, list) or not names or None in names:
        raise DataError(f"{file} needs names, a list of labels or a mapping from 0, 1, ... to labels, got {names!r}")
    base = file.parent / str(config.get("path") or "")
    base = base if base.is_dir() else file.parent
    folders = {name: _places(file, base, config[name]) for name in SPLITS if config.get(name)}
    if not folders:
        raise DataError(f"{file} lists no split; add train: and val: with the folders of images")
    return list(map(str, names)), folders


def _places(file: Path, base: Path, given: Any) -> list[Path]:  # noqa: ANN401 - anything that YAML holds
    found = []
    for text in map(str, given if isinstance(given, list) else [given]):
        # Roboflow writes ../train/images for train/images
        tried = [base / text, file.parent / text, file.parent / text.removeprefix("../")]
        place = next((place for place in tried if place.exists()), None)
        if place is None:
            raise DataError(f"{file} refers to {text}; not found: {', '.join(map(str, dict.fromkeys(tried)))}")
        found.append(place)
    return found


def _without_config(root: Path) -> tuple[list[str], dict[str, list[Path]]]:
    """Return the label names and folders of a dataset without a configuration."""
    if (root / "images").is_dir():
        inside = [name for name in SPLITS if name in layout.subfolders(root / "images")]
        folders = {name: [root / "images" / name] for name in inside} or {"train": [root / "images"]}
    else:
        folders = {name: [root / name / "images"] for name in SPLITS if (root / name / "images").is_dir()}
    files = [file for file in (root / "classes.txt", root / "labels" / "classes.txt") if file.is_file()]
    if not files:
        raise DataError(f"{root} does not name its labels; add data.yaml with names, or classes.txt with one per line")
    return layout.read_lines(files[0]), folders


def _read(root: Path, places: list[Path], labels: LabelSpace) -> ImageDataset:
    """Read the images of one split."""
    images = [image for place in places for image in _images(place)]
    if not images:
        raise DataError(f"no images in {', '.join(map(str, places))}")
    boxes = [_boxes(_label_file(image), labels) for image in images]
    columns, areas = np.array([box for each in boxes for box in each], dtype=np.float64).reshape(-1, 2).T
    return layout.from_objects(
        Files(root, [_relative(image, root) for image in images]),
        labels,
        rows=np.repeat(np.arange(len(images)), list(map(len, boxes))),
        columns=columns,
        areas=areas,
    )


def _images(place: Path) -> list[Path]:
    """Return the images of a folder, or of a text file that lists them."""
    if place.is_dir():
        return [place / name for name in layout.list_images(place)]
    return [place.parent / line for line in layout.read_lines(place)]


def _label_file(image: Path) -> Path:
    """Return the text file of an image: the last folder called images becomes labels."""
    parts = list(image.parts)
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts).with_suffix(".txt")


def _boxes(file: Path, labels: LabelSpace) -> list[tuple[int, float]]:
    """Return the label and area of each object: ``class x y width height``, or a class and the corners of a polygon."""
    if not file.is_file():
        return []
    boxes = []
    for number, line in enumerate(file.read_text("utf-8-sig").splitlines(), 1):
        if not line.strip():
            continue
        try:
            label, *values = map(float, line.split())
            corners = np.array(values[: len(values) // 2 * 2]).reshape(-1, 2)
            width, height = corners[1] if len(corners) == 2 else np.ptp(corners, axis=0)
            if not 0 <= label < len(labels) or label != int(label):
                raise ValueError(f"there is no label {label:g} among {len(labels)} labels")
        except ValueError as error:
            raise DataError(f"cannot parse line {number} of {file}, {line[:60]!r}: {error}") from error
        boxes.append((int(label), float(width * height)))
    return boxes


def _relative(image: Path, root: Path) -> str:
    return (image.relative_to(root) if image.is_relative_to(root) else image.absolute()).as_posix()
