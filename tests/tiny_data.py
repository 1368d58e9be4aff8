"""Tiny datasets on disk, in the forms of the real ones, each split with `num` images."""

import json

from conformance.reader_suite import draw


def write_coco(root, *, num):
    names = ["cat", "dog", "owl"]
    categories = [{"id": number, "name": name} for number, name in enumerate(names)]
    for split in ("train2014", "val2014"):
        images = [{"id": n, "file_name": f"{n}.jpg", "width": 8, "height": 6} for n in range(num)]
        objects = [{"image_id": n, "category_id": (n + k) % 3} for n in range(num) for k in range(2)]
        file = root / "annotations" / f"instances_{split}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))
        for n in range(num):
            draw(root / split / f"{n}.jpg")


def write_voc(root, *, num, splits=("trainval", "test"), labels=("dog", "cat")):
    for folder in ("Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    for split in splits:
        names = [f"{split}{n}" for n in range(num)]
        (root / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(names))
        for n, name in enumerate(names):
            things = [
                f"<object><name>{labels[(n + k) % len(labels)]}</name><difficult>0</difficult></object>"
                for k in range(n % 2 + 1)
            ]
            (root / "Annotations" / f"{name}.xml").write_text(f"<annotation>{''.join(things)}</annotation>")
            draw(root / "JPEGImages" / f"{name}.jpg")


def write_nus_wide(root, *, num):
    concepts, tags = ["airport", "birds", "sky"], ["nature", "blue", "zoo"]
    for folder in ("ImageList", "Groundtruth/TrainTestLabels", "NUS_WID_Tags", "ConceptsList"):
        (root / folder).mkdir(parents=True)
    for part in ("Train", "Test"):
        names = [f"zoo/{part}_{n}.jpg" for n in range(num)]
        (root / "ImageList" / f"{part}Imagelist.txt").write_text("\n".join(name.replace("/", "\\") for name in names))
        for column, concept in enumerate(concepts):
            lines = "\n".join(str(int(n % 3 == column)) for n in range(num))
            (root / "Groundtruth" / "TrainTestLabels" / f"Labels_{concept}_{part}.txt").write_text(lines)
        rows = ["\t".join(str(int(n % 3 == column)) for column in range(3)) for n in range(num)]
        (root / "NUS_WID_Tags" / f"{part}_Tags1k.dat").write_text("\n".join(rows))
        for name in names:
            draw(root / "Flickr" / name)
    (root / "ConceptsList" / "Concepts81.txt").write_text("\n".join(concepts))
    (root / "NUS_WID_Tags" / "TagList1k.txt").write_text("\n".join(tags))


def write_open_images(root, *, num):
    root.mkdir()
    for split, file in (("train", "oidv6-train"), ("validation", "validation")):
        rows = [f"{split}{n},verification,/m/{(n + k) % 3},{1 - k}" for n in range(num) for k in range(2)]
        text = "\n".join(["ImageID,Source,LabelName,Confidence", *rows])
        (root / f"{file}-annotations-human-imagelabels.csv").write_text(text)
        for n in range(num):
            draw(root / split / f"{split}{n}.jpg")
