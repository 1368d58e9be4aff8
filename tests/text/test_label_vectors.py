"""Vectors of labels: sentences, descriptions, averages."""

import pytest
import torch

from manylabel.errors import ConfigError
from manylabel.text import StoredVectors, TextEncoder, encode_labels, text_centre
from manylabel.types import LabelSpace

SENTENCES = ["a cat", "my cat", "it purrs", "a dog", "my dog"]


@pytest.fixture
def encoder():
    return StoredVectors(SENTENCES, torch.randn(5, 6, generator=torch.Generator().manual_seed(0)))


def unit(vector):
    return vector / vector.norm()


def test_averages_sentences_and_the_description_with_equal_weight(encoder):
    labels = LabelSpace(["cat", "dog"], descriptions={"cat": "it purrs"})
    found = encode_labels(encoder, labels, templates=["a {label}", "my {label}"])
    cat = sum(unit(encoder.encode([text])[0]) for text in ("a cat", "my cat", "it purrs"))
    dog = sum(unit(encoder.encode([text])[0]) for text in ("a dog", "my dog"))
    expected = torch.stack([unit(cat), unit(dog)]) * 6**0.5
    torch.testing.assert_close(found, expected)


def test_display_names_go_into_the_sentences(encoder):
    labels = LabelSpace(["/m/1"], display_names={"/m/1": "cat"})
    found = encode_labels(encoder, labels, templates=["a {label}"])
    torch.testing.assert_close(found[0], unit(encoder.encode(["a cat"])[0]) * 6**0.5)


def test_takes_the_encoders_own_templates():
    encoder = StoredVectors(["cat"], torch.ones(1, 4))
    assert encode_labels(encoder, LabelSpace(["cat"])).tolist() == [[1.0] * 4]
    assert isinstance(encoder, TextEncoder)


@pytest.mark.parametrize("templates", [[], ["a photo"], "a {label}"])
def test_rejects_templates_without_a_place_for_the_label(encoder, templates):
    with pytest.raises(ConfigError, match="label"):
        encode_labels(encoder, LabelSpace(["cat"]), templates=templates)


def test_the_centre_is_taken_from_every_label(encoder):
    labels = LabelSpace(["cat", "dog"])
    centre = text_centre(encoder, labels, templates=["a {label}"])
    cat, dog = (unit(encoder.encode([text])[0]) for text in ("a cat", "a dog"))
    torch.testing.assert_close(torch.tensor(centre), (cat + dog) / 2, atol=1e-5, rtol=1e-4)
    alone = encode_labels(encoder, LabelSpace(["dog"]), templates=["a {label}"], centre=centre)
    torch.testing.assert_close(alone[0], unit(dog - cat) * 6**0.5, atol=1e-4, rtol=1e-3)
    assert text_centre(encoder, LabelSpace(["cat"]), templates=["a {label}"]) == ()


def test_stored_vectors_are_of_labels_so_descriptions_are_left_out():
    labels = LabelSpace(["cat", "dog"], descriptions={"cat": "a small animal that purrs"})
    encoder = StoredVectors(["cat", "dog"], torch.eye(2))
    plain = encode_labels(encoder, LabelSpace(["cat", "dog"]))
    assert torch.equal(encode_labels(encoder, labels), plain)
