"""Damaged and hostile files of text vectors: each is refused in one sentence, in little memory."""

import io
import resource

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylabel.errors import DataError, ManyLabelError
from manylabel.text import StoredVectors, WordVectors, encode_labels, open_encoder
from manylabel.types import LabelSpace

ARRAYS = {
    "objects": {"labels": np.array(["cat", None], dtype=object), "vectors": np.eye(2)},
    "labels are numbers": {"labels": np.array([1, 2]), "vectors": np.eye(2)},
    "labels are a table": {"labels": np.array([["cat"], ["dog"]]), "vectors": np.eye(2)},
    "vectors are text": {"labels": np.array(["cat", "dog"]), "vectors": np.array([["a"], ["b"]])},
    "vectors are complex": {"labels": np.array(["cat", "dog"]), "vectors": np.eye(2) * 1j},
    "vectors are flat": {"labels": np.array(["cat", "dog"]), "vectors": np.zeros(2)},
    "too few vectors": {"labels": np.array(["cat", "dog"]), "vectors": np.zeros((1, 2))},
    "not a number": {"labels": np.array(["cat", "dog"]), "vectors": np.full((2, 2), np.nan)},
    "infinite": {"labels": np.array(["cat", "dog"]), "vectors": np.full((2, 2), np.inf)},
    "overflows": {"labels": np.array(["cat", "dog"]), "vectors": np.full((2, 2), 1e300)},
}


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("name", ARRAYS)
def test_stored_vectors_that_do_not_fit_are_refused(tmp_path, name):
    np.savez(tmp_path / "vectors.npz", **ARRAYS[name])
    with pytest.raises(DataError, match=r"must be an \.npz file with the arrays labels"):
        StoredVectors.read(tmp_path / "vectors.npz")


@given(cut=st.integers(0, 700), at=st.integers(0, 699), value=st.integers(0, 255))
@pytest.mark.slow
def test_a_cut_or_changed_file_is_read_or_refused(tmp_path_factory, cut, at, value):
    buffer = io.BytesIO()
    np.savez(buffer, labels=np.array(["cat", "dog"]), vectors=np.eye(2))
    content = bytearray(buffer.getvalue())
    path = tmp_path_factory.mktemp("vectors") / "vectors.npz"
    for changed in (content[:cut], content[:at] + bytes([value]) + content[at + 1 :]):
        path.write_bytes(changed)
        try:
            assert StoredVectors.read(path).vectors.isfinite().all()
        except DataError:
            continue


WORDS = {
    "huge width": b"3 999999999999\n\xff\xfe\x00word \x00\x00",
    "huge count": b"999999999999 3\n\xff\xfe\x00word \x00\x00",
    "huge digits": b"9" * 5000 + b" 3\n\xff\xfe\x00\n",
    "not a number": b"cat 1 2\ndog nan 1\n",
    "infinite": b"cat 1 2\ndog inf 1\n",
    "overflows": b"cat 1 2\ndog 1e300 1\n",
}


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("name", WORDS)
def test_word_vectors_that_do_not_fit_are_refused(tmp_path, name):
    (tmp_path / "vectors").write_bytes(WORDS[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match="is not a file of word vectors"):
        WordVectors.read(tmp_path / "vectors")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_centre_of_another_encoder_is_refused(tmp_path):
    np.savez(tmp_path / "vectors.npz", labels=["cat"], vectors=np.eye(1, 4))
    encoder = open_encoder(f"npz:{tmp_path / 'vectors.npz'}")
    with pytest.raises(ManyLabelError, match="the centre has 3 numbers, but the encoder returns 4"):
        encode_labels(encoder, LabelSpace(["cat"]), centre=(0.1, 0.2, 0.3))
