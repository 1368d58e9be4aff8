"""Text to vectors: sentence encoders, word vectors and stored vectors, for labels that are given as text."""

from manylabel.text.encoder import TextEncoder, encode_labels, text_centre
from manylabel.text.opening import DEFAULT_ENCODER, open_encoder
from manylabel.text.sentences import SentenceEncoder
from manylabel.text.stored_vectors import StoredVectors
from manylabel.text.word_vectors import WordVectors

__all__ = [
    "DEFAULT_ENCODER",
    "SentenceEncoder",
    "StoredVectors",
    "TextEncoder",
    "WordVectors",
    "encode_labels",
    "open_encoder",
    "text_centre",
]
