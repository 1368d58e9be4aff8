from torch import nn

from manylabel.data import ImageDataset
from manylabel.data.sources import LazyBytes
from manylabel.recipes.advice import advise_on_head, advise_on_labels
from manylabel.targets import Targets
from manylabel.types import LabelSpace


def dataset(*, labels, present):
    targets = Targets.from_lists(present, num_labels=len(labels))
    return ImageDataset(LazyBytes(list(map(str, range(len(present)))), bytes), targets, LabelSpace(labels))


def test_an_empty_label_is_named():
    told = advise_on_labels(dataset(labels=["cat", "dog"], present=[[0]]), what="train on", effect="so it is lost")
    assert told == ["no picture to train on has the label 'dog', so it is lost"]


def test_many_empty_labels_are_named_as_far_as_a_line_goes():
    labels = [f"label{number}" for number in range(20)]
    (told,) = advise_on_labels(dataset(labels=labels, present=[[0]]), what="judge by", effect="so it is left out")
    assert told.startswith("no picture to judge by has one of 19 labels, so they are left out: 'label1', 'label2', ")
    assert told.endswith(" and 9 more")


def test_nothing_is_said_when_all_is_well():
    assert advise_on_labels(dataset(labels=["cat"], present=[[0]]), what="train on", effect="") == []
    assert advise_on_head(nn.Linear(100, 10), num_pictures=1) == []
