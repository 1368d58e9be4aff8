"""Choose what to label next: a few labelled images, many others, and a table to fill in.

    python examples/label_next.py

Stands alone: it draws its own images. The model is a small, untrained one so that it runs offline in seconds; drop
`backbone=` to use the default.
"""

import tempfile
from pathlib import Path

import manylabel as ml
from manylabel.data import write_scenes


def main() -> None:
    """Suggest images, label them, and read the table back."""
    folder = Path(tempfile.mkdtemp())
    scenes = ml.data.load(write_scenes(folder / "photos", 60))
    labelled = scenes.subset(range(20))
    backbone = ml.Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,), image_size=64)
    found = ml.suggest(labelled, scenes, n=5, backbone=backbone, workers=0)
    print(found.predictions)
    table = found.save(folder / "next.csv")
    print(table.read_text())

    header, *rows = table.read_text().splitlines()  # in real life, people fill in the column tags
    table.write_text("\n".join([header, *(row.replace(",,", ",cat|dog,", 1) for row in rows[:3]), *rows[3:]]))
    print(ml.data.load(f"{table},blank=drop"))


if __name__ == "__main__":
    main()
