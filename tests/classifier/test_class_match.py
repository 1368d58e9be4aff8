"""Typed labels matched to classes, by text and by WordNet."""

import pytest
import torch
from timm.data import ImageNetInfo

from manylabel.classifier.class_match import find_kinds, find_synonyms, match_classes
from manylabel.text import StoredVectors
from manylabel.types import LabelSpace
from unrelated_encoder import UnrelatedEncoder

INFO = ImageNetInfo()
SYNSETS = INFO.label_names()


@pytest.mark.parametrize(
    ("typed", "known"),
    [
        ("aeroplane", "airplane"),
        ("plane", "airplane"),
        ("sofa", "couch"),
        ("pottedplant", "potted plant"),
        ("Dining-Table", "dining table"),
        ("mobile phone", "cell phone"),
        ("hair dryer", "hair drier"),
        ("dogs", "dog"),
        ("people", "person"),
        ("knives", "knife"),
        ("benches", "bench"),
        ("puppies", "puppy"),
        ("Motor Bikes", "motorcycle"),
        ("doughnut", "donut"),
        ("tvmonitor", "tv"),
        ("television", "tv"),
        ("settees", "couch"),
        ("humans", "person"),
    ],
)
def test_other_names_of_a_trained_label_are_found(typed, known):
    labels = ["airplane", "couch", "potted plant", "dining table", "cell phone", "hair drier", "dog", "bus", "person"]
    labels += ["knife", "bench", "puppy", "motorcycle", "donut", "tv"]
    assert find_synonyms(UnrelatedEncoder(), [typed], labels) == {typed: known}


def test_a_name_of_two_trained_labels_or_of_none_is_no_synonym():
    labels = ["bicycle", "motorcycle", "bus"]
    assert find_synonyms(UnrelatedEncoder(), ["bike", "glass", "business"], labels) == {}


def test_a_rare_meaning_makes_no_synonym():
    labels = ["bowl", "bicycle", "cat", "toilet", "train"]  # WordNet lists each of these names next to one of them
    assert find_synonyms(UnrelatedEncoder(), ["stadium", "wheel", "guy", "bathroom", "gear"], labels) == {}


@pytest.mark.parametrize(
    ("typed", "kind_of"),
    [("man", "person"), ("Women", "person"), ("old lady", "person"), ("toddler", "child"), ("kids", "child")],
)
def test_kinds_of_people_are_found_as_the_most_specific_trained_label(typed, kind_of):
    assert find_kinds([typed], ["dog", "person", "child"]) == {typed: kind_of}


def test_other_compounds_and_words_with_another_first_meaning_are_no_kinds():
    assert find_kinds(["sea horse", "paper plane"], ["horse", "plane"]) == {}
    assert find_kinds(["hand", "star", "justice", "model", "fan", "苹果", "..."], ["person"]) == {}


def test_nearly_equal_vectors_are_synonyms():
    encoder = StoredVectors(["fridge", "refrigerator", "oven"], torch.tensor([[1.0, 0.1], [1, 0], [0, 1]]))
    found = find_synonyms(encoder, ["fridge", "Fridges"], ["oven", "refrigerator"])
    assert found == {"fridge": "refrigerator", "Fridges": "refrigerator"}


def test_a_group_of_wordnet_gathers_its_classes():
    names = [INFO.index_to_description(number) for number in range(1000)]
    match = match_classes(UnrelatedEncoder(), LabelSpace(["dog", "zebra", "qwertz"]), names, SYNSETS)
    breeds, dog = slice(151, 269), match.weights[0]  # ImageNet's dogs, from Chihuahua to Mexican hairless
    assert dog[breeds].min() > torch.cat([dog[:151], dog[269:]]).max()
    assert dog[breeds].min() >= 0.5 / 118**0.5
    assert match.weights[1].argmax() == 340
    assert match.similarity[0] == match.similarity[1] == 1
    assert match.similarity[2] < 0.5


def test_weights_follow_the_most_similar_name_of_each_class():
    vectors = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0.9, 0.1]])
    encoder = StoredVectors(["stove", "cooker", "tram", "hob"], vectors)
    match = match_classes(encoder, LabelSpace(["hob"]), ["stove, cooker", "tram"])
    assert match.weights[0, 0] > 0.99
    assert match.nearest == (("stove", "tram"),)
    assert match.similarity[0].item() == pytest.approx(0.9 / (0.81 + 0.01) ** 0.5, abs=1e-5)


def test_spread_counts_the_names_that_a_label_matches_alike():
    encoder = StoredVectors(["stove", "tram", "oak", "hob", "thing"], torch.eye(5)[[0, 1, 2, 0, 4]])
    match = match_classes(encoder, LabelSpace(["hob", "thing"]), ["stove", "tram", "oak"])
    assert match.spread.tolist() == pytest.approx([1, 3], abs=0.01)
