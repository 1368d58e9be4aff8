"""Load the files for FiftyOne and CVAT with other people's readers; `make annotators` sets up what it needs.

    python tools/try_annotation_files.py PYTHON

The interpreter that runs this has fiftyone and datumaro, PYTHON has manylabel. FiftyOne's own importer reads its file;
no database is started, as its binary is not on PyPI. CVAT's file is read by Datumaro.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import fiftyone
from datumaro import Dataset
from fiftyone.utils.data import FiftyOneImageClassificationDatasetImporter

WRITE = """
from pathlib import Path
import numpy as np
from manylabel.builtin import sample_photos
from manylabel.predictions import Predictions
from manylabel.types import LabelSpace
folder = Path("images/my photos")
folder.mkdir(parents=True)
for photo in sample_photos():
    (folder / photo.name).write_bytes(photo.read_bytes())
scores = np.array([[0.9, 0.7], [0.1, 0.2], [0.3, 0.8]])
predictions = Predictions(scores, LabelSpace(["cat", "dog <3"]), [str(photo) for photo in sorted(folder.iterdir())])
predictions.save("tags.fiftyone.json")
predictions.save("images/tags.cvat.xml").rename("tags.cvat.xml")  # Datumaro adds images/ to the names
"""
TAGS = {"astronaut.jpg": {"cat": 0.9, "dog <3": 0.7}, "chelsea.jpg": {}, "coffee.jpg": {"dog <3": 0.8}}


def main() -> None:
    """Write both files, and compare what is read with what was written."""
    print(", ".join(f"{name} {version(name)}" for name in ("fiftyone", "datumaro")), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "-c", WRITE], cwd=folder, check=True)
        photos = Path(folder).resolve() / "images" / "my photos"
        check(
            "FiftyOne", read_fiftyone(Path(folder) / "tags.fiftyone.json"), {photos / name: TAGS[name] for name in TAGS}
        )
        check("CVAT", read_cvat(Path(folder) / "tags.cvat.xml"), {photos / name: [*TAGS[name]] for name in TAGS})


def read_fiftyone(path: Path) -> dict[Path, dict[str, float]]:
    """Return the labels and confidences of each image as samples have them."""
    found = {}
    with FiftyOneImageClassificationDatasetImporter(labels_path=str(path), compute_metadata=True) as importer:
        for image, metadata, label in importer:
            sample = fiftyone.Sample(filepath=image, metadata=metadata, predictions=label)
            if not isinstance(sample.predictions, fiftyone.Classifications) or not sample.metadata.width:
                sys.exit(f"FiftyOne: not Classifications of an image: {sample}")
            found[Path(sample.filepath)] = {tag.label: tag.confidence for tag in sample.predictions.classifications}
    return found


def read_cvat(path: Path) -> dict[Path, list[str]]:
    """Return the labels of each image that can be read."""
    dataset = Dataset.import_from(str(path), "cvat")
    names = dataset.get_label_cat_names()
    items = [item for item in dataset if item.media.data.size]
    return {Path(item.media.path).resolve(): [names[tag.label] for tag in item.annotations] for item in items}


def check(name: str, found: object, expected: object) -> None:
    """Print what was read, or stop if it is something else."""
    if found != expected:
        sys.exit(f"{name}: expected {expected}, found {found}")
    print(f"{name}: as expected, {found}", flush=True)


if __name__ == "__main__":
    main()
