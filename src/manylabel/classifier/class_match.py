"""Typed labels matched to the classes that a pretrained model knows, by the similarity of their names and by WordNet.

Fellbaum, "WordNet", MIT Press 1998: ``wordnet.tsv`` holds the ImageNet-1k classes and all their hypernyms;
``wordnet_people.tsv`` everyday names of people ("boy", "nurse") of which that is the first meaning: ImageNet-1k has
almost none; ``wordnet_rare.tsv`` those names of ImageNet's 21,843 synsets that first of all mean something else.

Letters in shape comments: L labels, K classes, S names of classes, E text dimensions.
"""

import hashlib
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from manylabel.storage import cache_folder, replacing
from manylabel.text import OFFLINE_ENCODERS, TextEncoder, encode_labels
from manylabel.types import LabelSpace

logger = logging.getLogger(__name__)

TEMPERATURE = 0.07
"""Temperature of the softmax over classes, chosen on COCO with the other settings (docs/results.md)."""

HYPERNYM_WEIGHT = 0.5
"""Weight of the classes below a WordNet name that is typed exactly, such as the 118 breeds of "dog", n of them: each
gets this over sqrt(n), between the mean of their probabilities, which is small, and the sum."""

SYNONYM_SIMILARITY = 0.9
"""Cosine similarity above which a typed label counts as another name of a trained one."""

EVERYDAY_NAMES = (
    {"cell phone", "smartphone"},
    {"couch", "settee"},
    {"donut", "doughnut"},
    {"microwave", "microwave oven"},
    {"motorcycle", "motorbike"},
    {"person", "human", "human being"},
    {"truck", "lorry"},
    {"tv", "television", "telly", "tv set", "television set", "tv monitor"},
)
"""Names of one thing in photos that WordNet lists apart, or of which it lists another meaning first."""

_IRREGULAR = {
    "people": "person",
    "men": "man",
    "children": "child",
    "mice": "mouse",
    "geese": "goose",
    "teeth": "tooth",
    "feet": "foot",
    "knives": "knife",
    "wolves": "wolf",
    "leaves": "leaf",
    "loaves": "loaf",
    "shelves": "shelf",
    "scarves": "scarf",
}

_LABELS_AT_ONCE = 4096
_NUM_NEAREST = 3


@dataclass(frozen=True, eq=False)
class ClassMatch:
    """Typed labels as mixtures of classes.

    Args:
        weights: ``[L, K]``, weight of each class in each label; rows sum to 1, except those of WordNet groups.
        similarity: ``[L]``, cosine similarity to the nearest name of a class; 1 for the name of a group of classes.
        nearest: Nearest class names of each label, the most similar first.
        spread: ``[L]``, effective number of classes that the text matches, ``1 / sum of squared weights``: a few for a
            label that resembles some, hundreds for one that resembles none or all; 1 for the name of a group.
    """

    weights: Tensor
    similarity: Tensor
    nearest: tuple[tuple[str, ...], ...]
    spread: Tensor


def match_classes(
    encoder: TextEncoder, labels: LabelSpace, names: Sequence[str], synsets: Sequence[str] = ()
) -> ClassMatch:
    """Match labels to named classes.

    A class is as similar to a label as the most similar of its names, minus its mean similarity to all classes: some
    names are similar to everything. A softmax over classes gives the weights. A label that is, word for word, a name
    of a WordNet group ("dog", "vehicle") has half of its weight on the classes of the group.

    Args:
        encoder: Text encoder.
        labels: Labels; descriptions are encoded, too.
        names: Names of each class, separated by commas.
        synsets: WordNet identifiers of the first classes (default: no groups).

    Examples:
        >>> from manylabel.text import StoredVectors
        >>> vectors = torch.tensor([[1.0, 0], [1, 0], [0, 1], [1, 0.1]])
        >>> encoder = StoredVectors(["tabby", "cat", "oven", "kitten"], vectors)
        >>> match = match_classes(encoder, LabelSpace(["kitten"]), ["tabby, cat", "oven"])
        >>> match.nearest, [round(weight, 2) for weight in match.weights[0].tolist()]
        ((('tabby', 'oven'),), [1.0, 0.0])
    """
    synonyms = [(number, name) for number, given in enumerate(names) for name in given.split(", ")]
    owners = torch.tensor([number for number, _ in synonyms])
    of_names = _name_vectors(encoder, [name for _, name in synonyms])  # [S, E]

    def similarities(vectors: Tensor) -> Tensor:  # [L, K]
        cosines = vectors @ of_names.t()
        return cosines.new_full((len(vectors), len(names)), -1).scatter_reduce(
            1, owners.expand_as(cosines), cosines, "amax"
        )

    first = torch.searchsorted(owners, torch.arange(len(names)))  # the first name of each class
    common = similarities(of_names[first]).mean(0)  # [K]
    vectors = _vectors(encoder, labels)
    groups: dict[str, set[int]] = {}
    for name, below in group_names(synsets).items():
        groups.setdefault(_normal(name), set()).update(below)
    weights, best, nearest = [], [], []
    for start in range(0, len(labels), _LABELS_AT_ONCE):
        found = similarities(vectors[start : start + _LABELS_AT_ONCE])
        values, columns = found.topk(min(_NUM_NEAREST, len(names)), dim=1)
        nearest += [tuple(names[column].split(", ")[0] for column in row) for row in columns.tolist()]
        best.append(values[:, 0])
        weights.append(((found - common) / TEMPERATURE).softmax(1))
    joined, similarity = torch.cat(weights), torch.cat(best)
    spread = torch.cat([1 / part.square().sum(1) for part in weights])
    for row, name in enumerate(labels):
        if members := groups.get(_normal(labels.display(name))):
            similarity[row] = spread[row] = 1
            joined[row] *= 1 - HYPERNYM_WEIGHT
            joined[row, list(members)] += HYPERNYM_WEIGHT / math.sqrt(len(members))
    return ClassMatch(joined, similarity, tuple(nearest), spread)


def find_synonyms(encoder: TextEncoder, labels: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Find labels that are other names of known ones.

    Names are the same if they differ in case, spaces, hyphens or number ("mice") only, if WordNet lists them as names
    of one thing, and that is the first meaning of both ("airplane", "aeroplane"; not "bowl", "stadium"), if
    `EVERYDAY_NAMES` does, or if their text vectors are nearly the same. If WordNet lists a name for two known labels
    ("bike"), only its text vector can make it a synonym of one.

    Args:
        encoder: Text encoder.
        labels: Typed labels.
        known: Labels of the model.

    Returns:
        The known label of each typed one that has one.

    Examples:
        >>> from manylabel.text import StoredVectors
        >>> encoder = StoredVectors(["sofa", "sofas", "couch", "dog"], torch.eye(4))
        >>> find_synonyms(encoder, ["sofas", "dog", "Couch"], ["sofa"])
        {'sofas': 'sofa', 'Couch': 'sofa'}
    """
    owners: dict[str, set[str]] = {}
    for name in known:
        for form in _other_names(name, rare=True):
            owners.setdefault(form, set()).add(name)
    exact = {_normal(name): name for name in known}
    found: dict[str, str] = {}
    for name in labels:
        candidates = {exact[_normal(name)]} if _normal(name) in exact else owners.get(_normal(name), set())
        if len(candidates) == 1 and _normal(name) in _other_names(*candidates):
            found[name] = next(iter(candidates))
    forms = ((name, form) for name in labels if name not in found for form in (name, _singular(name)))
    rest = {name: form for name, form in forms if encoder.reads(form)}  # the singular, if it can be read
    if rest and all(map(encoder.reads, known)):
        texts = list(dict.fromkeys(rest.values()))
        cosines = _vectors(encoder, LabelSpace(texts)) @ _vectors(encoder, LabelSpace(known)).t()
        values, columns = cosines.max(1)
        pairs = zip(texts, values.tolist(), columns.tolist(), strict=True)
        similar = {text: known[column] for text, value, column in pairs if value >= SYNONYM_SIMILARITY}
        found |= {name: similar[text] for name, text in rest.items() if text in similar}
    return {name: found[name] for name in labels if name in found}


def find_kinds(labels: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Find names of people that WordNet lists as kinds of known labels: a nurse is a person.

    Compounds are looked up by their last word, too ("old man").

    Args:
        labels: Typed labels.
        known: Labels of the model.

    Returns:
        The known label of each typed one that is a kind of one; the most specific, if there are several.

    Examples:
        >>> find_kinds(["nurse", "old man", "toddler", "justice"], ["person", "child", "dog"])
        {'nurse': 'person', 'old man': 'person', 'toddler': 'child'}
    """
    of_name = {_normal(name): name for name in known}
    people, rows = _rows("wordnet_people.tsv"), _rows("wordnet.tsv") | _rows("wordnet_people.tsv")
    synsets = {_normal(name): synset for synset, (_, names) in people.items() for name in names}
    found: dict[str, str] = {}
    for label in labels:
        synset = synsets.get(_normal(label)) or synsets.get(_normal(label.split()[-1]))
        level = [] if synset is None else [synset]
        while level and label not in found:  # one level up at a time
            forms = [_normal(name) for each in level for name in rows[each][1]]
            if above := [of_name[form] for form in forms if form in of_name]:
                found[label] = above[0]
            level = [parent for each in level for parent in rows[each][0]]
    return found


def _normal(name: str) -> str:
    """Return a name without case, spaces and hyphens, of which singular and plural are the same."""
    return _singular(re.sub(r"[\s_\-]+", "", name.lower()))


def _singular(name: str) -> str:
    """Return a name of which singular and plural are the same."""
    for plural, singular in _IRREGULAR.items():
        if name.endswith(plural):
            return name.removesuffix(plural) + singular
    text = re.sub(r"(?<=..)ies?$", "y", name)
    text = re.sub(r"(ch|sh|x)es$", r"\1", text)
    return text[:-1] if len(text) > 3 and text.endswith("s") and not text.endswith("ss") else text


def _vectors(encoder: TextEncoder, labels: LabelSpace) -> Tensor:
    """Return unit vectors ``[L, E]``, the mean over the bare name and the encoder's sentences."""
    templates = list(dict.fromkeys(("{label}", *encoder.templates)))
    return F.normalize(encode_labels(encoder, labels, templates=templates), dim=1)


def _name_vectors(encoder: TextEncoder, names: Sequence[str]) -> Tensor:
    """Return the vectors of class names, cached on disk for encoders whose weights cannot change."""
    unique = list(dict.fromkeys(names))
    positions = {name: row for row, name in enumerate(unique)}
    rows = [positions[name] for name in names]
    if encoder.name not in OFFLINE_ENCODERS:
        return _vectors(encoder, LabelSpace(unique))[rows]
    key = "\n".join([encoder.name, version("sentence-transformers"), *unique])
    path = cache_folder() / "text" / f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.npy"
    if path.is_file():
        try:
            return torch.from_numpy(np.load(path))[rows]
        except (OSError, ValueError) as error:
            logger.warning("encoding class names again: %s is damaged (%s)", path, error)
    vectors = _vectors(encoder, LabelSpace(unique))
    with replacing(path) as temporary, Path(temporary).open("wb") as file:
        np.save(file, vectors.numpy())
    return vectors[rows]


@lru_cache(maxsize=2)
def _rows(file: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return hypernyms and names by synset."""
    lines = Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()[1:]
    rows = (line.split("\t") for line in lines)
    return {synset: (parents.split(), names.split("|")) for synset, parents, names in rows}


def group_names(synsets: Sequence[str]) -> dict[str, set[int]]:
    """Return the classes at and below each WordNet name.

    Args:
        synsets: WordNet identifiers of the classes.

    Examples:
        >>> group_names(["n02123045", "n02123159"])["cat"]  # tabby and tiger cat
        {0, 1}
    """
    groups: dict[str, set[int]] = {}
    wordnet = _rows("wordnet.tsv")
    for number, synset in enumerate(synsets):
        above, seen = [synset], set()
        while above:
            each = above.pop()
            if each in seen or each not in wordnet:
                continue
            seen.add(each)
            above += wordnet[each][0]
            for name in wordnet[each][1]:
                groups.setdefault(name, set()).add(number)
    return groups


@lru_cache(maxsize=1)
def _lemmas() -> dict[str, list[tuple[list[str], list[str]]]]:
    """Return, by name, its synsets among the 21,843 of ImageNet: all their names, and those that first mean it."""
    from timm.data.imagenet_info import ImageNetInfo  # imports torchvision

    info = ImageNetInfo("imagenet-21k-goog")
    lines = Path(__file__).with_name("wordnet_rare.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rare = {synset: set(names.split("|")) for synset, names in (line.split("\t") for line in lines)}
    found: dict[str, list[tuple[list[str], list[str]]]] = {}
    for number, synset in enumerate(info.label_names()):  # type: ignore[no-untyped-call]  # timm leaves it untyped
        given = info.index_to_description(number).split(", ")
        names = [_normal(name) for name in given]
        first = [_normal(name) for name in given if name not in rare.get(synset, ())]
        for name in names:
            found.setdefault(name, []).append((names, first))
    return found


@lru_cache(maxsize=4096)
def _other_names(name: str, *, rare: bool = False) -> set[str]:
    """Return a name and its synonyms in WordNet, without case and spaces; also by rare meanings, if wanted."""
    form = _normal(name)
    lists = [names if rare else first for names, first in _lemmas().get(form, ()) if rare or form in first]
    lists += [names for names in ([*map(_normal, group)] for group in EVERYDAY_NAMES) if form in names]
    return {form, *(other for names in lists for other in names)}
