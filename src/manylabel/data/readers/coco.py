"""MS-COCO: a JSON file of images, categories and objects per split.

Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014.
"""

import re
from io import BytesIO
from pathlib import Path

import polars as pl

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers import layout
from manylabel.data.readers.layout import Empty
from manylabel.data.sources import Files
from manylabel.errors import DataError, list_choices
from manylabel.types import LabelSpace

# Outlines are nine tenths of COCO's files and of no use here: dropping them first makes reading three times faster.
_OUTLINE = re.compile(rb'"segmentation"\s*:\s*(?:\[[][0-9eE\s.,+-]*\]|\{[^{}]*\})')

_SCHEMA = {
    "images": pl.List(pl.Struct({"id": pl.Int64, "file_name": pl.String, "width": pl.Float64, "height": pl.Float64})),
    "categories": pl.List(pl.Struct({"id": pl.Int64, "name": pl.String})),
    "annotations": pl.List(pl.Struct({"image_id": pl.Int64, "category_id": pl.Int64, "area": pl.Float64})),
}


def coco(
    path: str | Path,
    *,
    split: str | None = None,
    images: str | Path | None = None,
    empty: Empty = "drop",
) -> ImageDataset:
    """Read MS-COCO, or other data in its format.

    The labels are the categories in the order of their ids. A label is present where it has an object, crowds included.

    Args:
        path: A folder with ``annotations/instances_{split}.json`` and the images in ``{split}`` or
            ``images/{split}``; or one such JSON file.
        split: Split, such as ``val2014`` (default: all).
        images: Folder of the images, if elsewhere, with a folder per split or all images; relative to the current
            folder or to `path`.
        empty: Whether to drop images without objects, as the papers do, or keep them.

    Returns:
        The dataset; `areas` holds the fraction of the image that a label's largest object covers, if the file has the
        areas of objects and the sizes of images.

    Raises:
        DataError: A folder, file or split is missing or cannot be understood.

    Examples:
        >>> coco("src")
        Traceback (most recent call last):
        manylabel.errors.DataError: src is not MS-COCO: no file annotations/instances_*.json; found: ...
    """
    layout.check_choices(empty=(empty, Empty))
    root, annotations = _find_annotations(layout.existing(path))
    wanted = layout.choose_splits(annotations, split, of=path)
    parts = {name: _read(file, *_find_images(root, name, images)) for name, file in wanted.items()}
    dataset = ImageDataset.join(parts, name=root.absolute().name)
    return dataset if empty == "keep" else dataset.subset(dataset.targets.labels_per_image > 0)


def _find_annotations(path: Path) -> tuple[Path, dict[str, Path]]:
    """Return the dataset's folder, and the annotation file of each split."""
    if path.is_file():
        root = path.parent.parent if path.parent.name == "annotations" else path.parent
        return root, {path.stem.removeprefix("instances_"): path}
    files = sorted((path / "annotations").glob("instances_*.json"))
    if not files:
        raise layout.wrong_format(path, "MS-COCO", "no file annotations/instances_*.json")
    return path, {file.stem.removeprefix("instances_"): file for file in files}


def _find_images(root: Path, split: str, images: str | Path | None) -> tuple[Path, str]:
    """Return a folder, and the prefix that makes a file name relative to it and unique in the dataset."""
    base = root if images is None else layout.image_folder(images, beside=root)
    found = next((prefix for prefix in (f"{split}/", f"images/{split}/") if (base / prefix).is_dir()), "")
    if not found and images is None:
        raise DataError(
            f"no images of split {split!r}: {root / split} does not exist; set images=FOLDER "
            f"or choose another split; {list_choices(split, layout.subfolders(root))} (in {root})"
        )
    return base, found


def _read(file: Path, folder: Path, prefix: str) -> ImageDataset:
    """Read the images, labels and objects of one split."""
    images, categories, objects = _tables(file)
    return layout.from_objects(
        Files(folder, prefix + images["file_name"]),
        LabelSpace(categories["name"].to_list()),
        rows=objects["row"].to_numpy(),
        columns=objects["column"].to_numpy(),
        areas=objects["area_fraction"].to_numpy(),
    )


def _tables(file: Path) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the images, the categories by id, and the objects with the `row`, `column` and `area_fraction` of each."""
    text = _OUTLINE.sub(b'"segmentation":0', file.read_bytes())
    try:
        tables = pl.read_json(BytesIO(text), schema=_SCHEMA)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"cannot read {file} as COCO JSON: {str(error).splitlines()[0]}") from error
    images, categories, objects = (
        tables[name].explode().struct.unnest().drop_nulls(key)  # a list that is empty or missing gives one null
        for name, key in (("images", "id"), ("categories", "id"), ("annotations", "image_id"))
    )
    for name, table in (("images", images), ("categories", categories)):
        if table.is_empty():
            raise DataError(f"{file} lists no {name}; COCO's JSON has images, categories and annotations")
    categories = categories.sort("id")
    rows = images.select(image_id="id", pixels=pl.col("width") * pl.col("height")).with_row_index("row")
    columns = categories.select(category_id="id").with_row_index("column")
    objects = objects.join(rows, on="image_id", how="left").join(columns, on="category_id", how="left")
    for key, found in (("image_id", "row"), ("category_id", "column")):
        strangers = objects.filter(pl.col(found).is_null())[key]
        if len(strangers):
            raise DataError(f"{file} has {len(strangers)} annotations with an unlisted {key}, such as {strangers[0]}")
    return images, categories, objects.with_columns(area_fraction=(pl.col("area") / pl.col("pixels")).fill_null(0))
