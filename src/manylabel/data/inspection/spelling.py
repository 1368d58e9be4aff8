"""Label names that are probably meant to be one: variants of case and spacing, and typos."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_typos", "find_variants"]

LEAST_RATIO = 20  # positives of a label and of its typo; rarer labels are compared only
LEAST_LENGTH = 4
LONG = 7  # letters; shorter names that differ in two are mostly other words: chair and car
_BINS = 32


def find_variants(names: Sequence[str], positives: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """Return groups of labels that differ only in case, spaces, hyphens and underscores, the most frequent first.

    Args:
        names: The labels.
        positives: Number of images of each, ``[L]``.

    Examples:
        >>> find_variants(["Cat", "cat", "traffic light", "traffic_light", "dog"], np.array([1, 9, 3, 2, 5]))
        [('cat', 'Cat'), ('traffic light', 'traffic_light')]
    """
    groups = defaultdict[str, list[int]](list)
    for label, name in enumerate(names):
        groups[_plain(name)].append(label)
    ranked = (sorted(group, key=lambda label: -positives[label]) for group in groups.values() if len(group) > 1)
    return [tuple(names[label] for label in group) for group in ranked]


def find_typos(names: Sequence[str], positives: NDArray[np.int64]) -> list[tuple[str, str]]:
    """Return pairs of a rare label that is probably a typo, and the frequent label that is probably meant.

    A probable typo has at most a twentieth of the other label's images, the same first letter, and differs by one
    insertion, deletion, substitution or transposition, or by two if it has seven letters or more. Names that differ in
    digits, and names without upper and lower case, are never typos of each other.

    Args:
        names: The labels.
        positives: Number of images of each, ``[L]``.

    Examples:
        >>> find_typos(["bicycle", "bycicle", "car", "cart"], np.array([90, 1, 80, 70]))
        [('bycicle', 'bicycle')]
    """
    plain = [_plain(name) for name in names]
    lengths = np.array([len(name) for name in plain])
    letters = np.zeros((len(names), _BINS), dtype=np.int16)
    for row, name in enumerate(plain):
        letters[row] = np.bincount([ord(letter) % _BINS for letter in name], minlength=_BINS)
    largest = positives.max(initial=0)
    found = []
    is_rare = (positives > 0) & (positives * LEAST_RATIO <= largest) & (lengths >= LEAST_LENGTH)
    for rare in np.flatnonzero(is_rare).tolist():
        most = 2 if lengths[rare] >= LONG else 1
        others = np.flatnonzero(positives >= positives[rare] * LEAST_RATIO)
        others = others[np.abs(letters[others] - letters[rare]).sum(axis=1) <= 2 * most]
        near = [int(other) for other in others if _could_be(plain[rare], plain[other], most)]
        if near:
            meant = min(near, key=lambda other: (_distance(plain[rare], plain[other]), -positives[other]))
            found.append((names[rare], names[meant]))
    return found


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFKC", name).casefold())


def _could_be(typo: str, meant: str, most: int) -> bool:
    has_case = typo.upper() != typo
    same_digits = re.sub(r"\D", "", typo) == re.sub(r"\D", "", meant)
    return has_case and same_digits and typo[0] == meant[0] and 0 < _distance(typo, meant) <= most


def _distance(one: str, other: str) -> int:
    """Return the number of insertions, deletions, substitutions and transpositions between two texts."""
    before, above = list[int](), list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        here = [row]
        for column, against in enumerate(other, 1):
            best = min(here[-1] + 1, above[column] + 1, above[column - 1] + (letter != against))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == against:
                best = min(best, before[column - 2] + 1)
            here.append(best)
        before, above = above, here
    return above[-1]
