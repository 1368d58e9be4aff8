"""Text to vectors: sentence encoders, word vectors and stored vectors, for labels that are given as text."""

from manylabel.text.encoders import (
    DEFAULT_ENCODER,
    SentenceEncoder,
    StoredVectors,
    TextEncoder,
    WordVectors,
    open_encoder,
)
from manylabel.text.label_vectors import TextVocabulary, check_templates, encode_labels, text_centre

__all__ = [
    "DEFAULT_ENCODER",
    "SentenceEncoder",
    "StoredVectors",
    "TextEncoder",
    "TextVocabulary",
    "WordVectors",
    "check_templates",
    "encode_labels",
    "open_encoder",
    "text_centre",
]
