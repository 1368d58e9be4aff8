import json
from importlib.resources import files

import numpy as np
import pytest

from manylabel.data.inspection.spelling import find_typos, find_variants
from manylabel.data.readers.voc import VOC_LABELS

COCO_LABELS = json.loads((files("manylabel.builtin") / "coco80" / "labels.json").read_text())["names"]


@pytest.mark.parametrize("labels", [VOC_LABELS, COCO_LABELS])
def test_takes_no_label_of_voc_or_coco_for_another(labels):
    generator = np.random.default_rng(0)
    for _ in range(50):
        positives = np.exp(generator.uniform(0, 8, len(labels))).astype(np.int64)
        assert find_typos(labels, positives) == []
    assert find_variants(labels, positives) == []


@pytest.mark.parametrize(
    ("typo", "meant", "is_found"),
    [
        ("bicylce", "bicycle", True),
        ("bicycles", "bicycle", True),
        ("motorbyk", "motorbike", True),
        ("lake", "cake", False),
        ("class 10", "class 1", False),
        ("car", "cat", False),
        ("chair", "car", False),
        ("赤い車両", "青い車両", False),
        ("Bicycle", "bicycle", False),  # a variant, not a typo
    ],
)
def test_a_typo_is_rare_and_near(typo, meant, is_found):
    assert find_typos([typo, meant], np.array([2, 100])) == ([(typo, meant)] if is_found else [])
    assert find_typos([typo, meant], np.array([90, 100])) == []
