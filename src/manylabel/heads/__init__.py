"""Heads: feature maps in, logits out; one file per method.

A new head is a file here, a line in `manylabel.heads.config.HEADS` and its lines below; `manylabel.heads.head` lists
what else it may offer.
"""

from manylabel.heads.config import HEADS, replace_head
from manylabel.heads.csra import CSRA
from manylabel.heads.hsq import HybridSharingQuery
from manylabel.heads.linear import LinearClassifier
from manylabel.heads.ml_decoder import MLDecoder
from manylabel.heads.open_vocabulary import ConSE, TextMap
from manylabel.heads.query2label import Query2Label
from manylabel.heads.representation_mixup import RepresentationMixup
from manylabel.heads.token_encoder import TokenEncoder

__all__ = [
    "CSRA",
    "HEADS",
    "ConSE",
    "HybridSharingQuery",
    "LinearClassifier",
    "MLDecoder",
    "Query2Label",
    "RepresentationMixup",
    "TextMap",
    "TokenEncoder",
    "replace_head",
]
