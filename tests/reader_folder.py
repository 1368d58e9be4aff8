"""What a reader of our pages has: a folder with everything that they name, and the commands to give in it."""

import re
import shlex
import shutil
from pathlib import Path
from string import Template

import datasets
import polars as pl

from conformance.reader_suite import draw
from manylabel import data
from tiny_data import write_coco, write_nus_wide, write_open_images, write_voc
from tiny_runs import make_model, make_run

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"
ELSEWHERE = {"/archive": "archive", "/shared": "shared", "/data/": ""}  # folders that a reader has, and we do not


def text_of(page):
    """Return a page's text, its folders being those of `furnish`."""
    text = page.read_text(encoding="utf-8")
    for given, ours in ELSEWHERE.items():
        text = text.replace(given, ours)
    return text


def furnish(root):
    """Fill a folder with everything that the pages name."""
    voc = ("dog", "cat", "cow", "bus", "sofa", "boat", "bird", "horse")
    write_voc(root / "VOCdevkit" / "VOC2012", num=24, splits=("train", "val"), labels=voc)
    write_coco(root / "coco", num=24)
    shutil.copytree(root / "coco" / "val2014", root / "val")
    shutil.copy(root / "coco" / "annotations" / "instances_val2014.json", root / "instances_val.json")
    write_open_images(root / "open-images", num=4)
    write_nus_wide(root / "nus-wide", num=4)
    for name in ("photo.jpg", "a.jpg", "b.jpg", "portrait.jpg", "holiday/beach.jpg", "scans/a/b.tif", "scans/c.png"):
        draw(root / name, size=(48, 40))
    for number, name in enumerate(
        ["archive/a.jpg", "more/a.jpg", "imagenet/train/cat/a.jpg", "imagenet/val/cat/b.jpg"]
    ):
        draw(root / name, size=(48, 40 + number))
    for number in range(8):
        draw(root / "coco128" / "images" / "train" / f"{number}.jpg", size=(48, 40 + number))
        box = root / "coco128" / "labels" / "train" / f"{number}.txt"
        box.parent.mkdir(parents=True, exist_ok=True)
        box.write_text(f"{number % 2} 0.5 0.5 0.2 0.2\n")
    (root / "coco128" / "data.yaml").write_text("names: [cat, dog]\ntrain: images/train\n")
    (root / "last-run").write_bytes(b"")
    names = [f"{('cat', 'dog')[number % 2]}/{number}.jpg" for number in range(24)]
    for number, name in enumerate([*names, "cat/next.jpg", "dog/next.jpg"]):  # two are not labelled yet
        draw(root / "photos" / name, size=(40 + number, 40))
    rows = [f"{name},{('cat', 'dog|sky')[number % 2]}|tag {number % 20}" for number, name in enumerate(names)]
    (root / "labels.csv").write_text("\n".join(["image,labels", *rows]) + "\n")

    labels = data.load(f"voc:{root / 'VOCdevkit' / 'VOC2012'}").labels
    model = make_model("linear", labels=labels)
    for name in ("my-model", "old-model", "new-model", "shared/model"):
        model.save_pretrained(root / name)
    shown = data.voc(root / "VOCdevkit" / "VOC2012", split="val").images
    scores = {label: [0.5] * len(shown) for label in labels.names}
    pl.DataFrame({"image": [shown.name(index) for index in range(len(shown))], **scores}).write_csv(
        root / "other-model.csv"
    )
    shutil.copy(root / "other-model.csv", root / "clip.csv")
    for name in ("first", "linear", "decoder", "a", "b", "distilled"):
        head = "ml_decoder" if name in ("first", "decoder") else "linear"
        make_run(root / "runs" / name, head=head, data=f"voc:{root / 'VOCdevkit' / 'VOC2012'}", labels=labels)
    shutil.copytree(root / "my-model", root / "runs" / "distilled" / "teachers" / "co-01" / "model")
    animals = data.coco(root / "coco", split="val2014").labels
    make_run(root / "runs" / "coco", data=f"coco:{root / 'coco'},split=val2014", labels=animals)
    rows = {"image": [{"bytes": (root / "a.jpg").read_bytes(), "path": None}] * 2, "tags": [["cat"], ["dog", "sky"]]}
    images = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    datasets.DatasetDict(train=images).save_to_disk(root / "owner" / "name")  # as if it were on the hub
    (root / "examples").symlink_to(ROOT / "examples")


def commands_of(block):
    """Return the commands of a block of bash, without comments, each as its words; pipes stay words."""
    variables = {}
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(Template(line).safe_substitute(variables), comments=True)
        name, is_assignment, value = words[0].partition("=") if len(words) == 1 else ("", "", "")
        if is_assignment and name.isidentifier():
            variables[name] = value
        elif words:
            yield words
