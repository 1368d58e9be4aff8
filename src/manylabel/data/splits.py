"""Seeded splits and folds, stratified over labels and label combinations.

The problem is that of Sechidis, Tsoumakas and Vlahavas, "On the Stratification of Multi-Label Data" (ECML PKDD 2011).
Their algorithm assigns one image after the other; this one works on all at once:

1. *Order.* Each image becomes one number whose digits are its labels, from the rarest to the most common. Every second
   digit counts downwards, as in a Gray code, which makes neighbours in this order differ in few labels. Images with
   the same labels are adjacent, next to those with the same rarest labels; so are images without labels. A seeded
   shuffle breaks ties.
2. *Deal.* Images are dealt to the folds along this order, in proportion to fold size. Sizes are exact, and every run
   of similar images is spread to within an image or so, which preserves label combinations.
3. *Balance.* Rounding errors remain and add up for common labels. Take the label with the worst spread, and the folds
   with the most and the fewest of its images. In each, find the images whose removal lowers the error most, over all
   labels, and swap the best pair while the sum of squared errors falls. Repeat until no label can be spread better
   (no two folds are more than one image apart) or no swap helps. A sample of the images comes first, since a swap
   found among all is hardly better than one found among some; all images are considered last.

Only the rarest labels of an image fit into its number (nine of 80 labels, four of 9,600); images that agree in these
count as equal. Unknown or absent labels, whichever the dataset lists, are balanced the same way, which preserves the
fraction of known labels per fold. All sums are of integers, so a seed gives the same split on every machine.

Letters in shape comments: N images, L labels, C columns to balance (labels, and unknown or absent ones), K folds.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from manylabel.data.dataset import ImageDataset
from manylabel.errors import ConfigError
from manylabel.targets import Targets

NUM_CANDIDATES = 32  # images per fold and round
SAMPLE_SIZE = 8_000
ROUNDS_PER_FOLD = 50  # a bound for thousands of labels; 80 labels take about ten rounds per fold


def stratified_split(
    targets: Targets, *, val_fraction: float, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split images into training and validation sets, stratified over the labels.

    Args:
        targets: The images' labels.
        val_fraction: Fraction of images for validation; their number is rounded.
        seed: Seed of the split.

    Returns:
        The sorted positions of the training images and of the validation images.

    Raises:
        ConfigError: One of the sets would be empty.

    Examples:
        >>> targets = Targets.from_lists([[0], [0, 1]] * 10, num_labels=2)
        >>> train, val = stratified_split(targets, val_fraction=0.2)
        >>> len(train), len(val), targets[val].positives.tolist()
        (16, 4, [4, 2])
    """
    num_images = len(targets)
    num_val = int(num_images * val_fraction + 0.5) if 0 < val_fraction < 1 else 0
    if not 0 < num_val < num_images:
        raise ConfigError(
            f"val_fraction must leave images to train and to validate on, got {val_fraction} of {num_images}; "
            "set a fraction between 0 and 1, or add images"
        )
    folds = _assign(targets, np.array([num_images - num_val, num_val]), seed)
    return np.flatnonzero(folds == 0), np.flatnonzero(folds == 1)


def stratified_folds(
    targets: Targets, *, num_folds: int, seed: int = 0
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Split images into cross-validation folds, stratified over the labels.

    Args:
        targets: The images' labels.
        num_folds: Number of folds; their sizes differ by at most one image.
        seed: Seed of the folds.

    Returns:
        The sorted positions of the training and validation images of each fold; every image is validated on once.

    Raises:
        ConfigError: There are fewer than two folds, or fewer images than folds.

    Examples:
        >>> targets = Targets.from_lists([[0], [0, 1], []] * 4, num_labels=2)
        >>> [targets[val].positives.tolist() for train, val in stratified_folds(targets, num_folds=4)]
        [[2, 1], [2, 1], [2, 1], [2, 1]]
    """
    num_images = len(targets)
    if not 2 <= num_folds <= num_images:
        raise ConfigError(
            f"num_folds must be at least 2 and at most the number of images ({num_images}), got {num_folds}"
        )
    sizes = np.full(num_folds, num_images // num_folds)
    sizes[: num_images % num_folds] += 1
    folds = _assign(targets, sizes, seed)
    return [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(num_folds)]


def _assign(targets: Targets, sizes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Assign a fold to each image, ``[N]``, for folds of the given sizes."""
    if seed < 0:
        raise ConfigError(f"seed must be 0 or more, got {seed}")
    generator = np.random.default_rng(seed)
    columns = _columns(targets)
    order = _order_by_likeness(columns, generator)
    columns, folds = columns[order], _deal(sizes, generator)
    excess = _excess(columns, folds, sizes)
    sample = generator.permutation(len(folds))[:SAMPLE_SIZE]
    folds[sample] = _balance(columns[sample], folds[sample], excess, unit=len(folds))
    assigned = np.empty_like(folds)
    assigned[order] = _balance(columns, folds, excess, unit=len(folds))
    return assigned


def _columns(targets: Targets) -> csr_array:
    """Return the columns to balance, ``[N, C]``: labels from the rarest, then listed unknown or absent labels."""
    listed = targets.unknown if targets.absent is None else targets.absent
    matrix = targets.present if listed is None else hstack([targets.present, listed], "csr")
    num_columns = matrix.shape[1]
    counts = np.bincount(matrix.indices, minlength=num_columns)
    rank = np.empty(num_columns, dtype=matrix.indices.dtype)
    rank[np.lexsort((counts, np.arange(num_columns) >= targets.shape[1]))] = np.arange(num_columns)
    ranked = csr_array((np.ones(matrix.nnz), rank[matrix.indices], matrix.indptr), shape=matrix.shape)
    ranked.sort_indices()
    return ranked


def _order_by_likeness(columns: csr_array, generator: np.random.Generator) -> NDArray[np.int64]:
    """Order the images such that neighbours differ in few labels; see the module docstring."""
    num_images, num_columns = columns.shape
    lengths = np.diff(columns.indptr)
    bits = max(int(num_columns).bit_length(), 1)
    num_digits = 63 // bits
    rows = np.repeat(np.arange(num_images), lengths)
    positions = np.arange(columns.nnz) - np.repeat(columns.indptr[:-1], lengths)
    kept = positions < num_digits
    digits = np.zeros((num_images, num_digits), dtype=np.int64)
    digits[rows[kept], positions[kept]] = num_columns - columns.indices[kept]
    digits[:, 1::2] = num_columns - digits[:, 1::2]
    keys = digits @ (1 << bits * np.arange(num_digits)[::-1])
    shuffled = generator.permutation(num_images)
    return shuffled[np.argsort(keys[shuffled], kind="stable")]


def _deal(sizes: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the fold of each position in the order, ``[N]``, each fold evenly spaced."""
    spaced = np.concatenate([(np.arange(size) + generator.random()) / size for size in sizes])
    return np.repeat(np.arange(len(sizes)), sizes)[np.argsort(spaced, kind="stable")]


def _excess(columns: csr_array, folds: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the excess of each column in each fold over its expectation, ``[K, C]``, in integer N-ths of an image."""
    num_images, num_columns = columns.shape
    positions = np.repeat(folds, np.diff(columns.indptr)) * num_columns + columns.indices
    counts = np.bincount(positions, minlength=len(sizes) * num_columns).reshape(len(sizes), num_columns)
    excess: NDArray[np.int64] = num_images * counts - np.outer(sizes, counts.sum(axis=0))
    return excess.astype(np.float64)


def _balance(
    columns: csr_array, folds: NDArray[np.int64], excess: NDArray[np.float64], *, unit: int
) -> NDArray[np.int64]:
    """Swap images between folds, in place, until no swap spreads the columns more evenly.

    `unit` is one image in the units of `excess`.
    """
    stuck = np.zeros(columns.shape[1], dtype=bool)
    for _ in range(ROUNDS_PER_FOLD * len(excess)):
        spread = np.where(stuck, 0, np.ptp(excess, axis=0))
        if spread.max(initial=0) <= unit:
            break
        worst = spread.argmax()
        giver, taker = int(excess[:, worst].argmax()), int(excess[:, worst].argmin())
        if _swap(columns, folds, excess, giver, taker, unit):
            stuck[:] = False  # the worst folds may have changed
        else:
            stuck[worst] = True
    return folds


def _swap(
    columns: csr_array, folds: NDArray[np.int64], excess: NDArray[np.float64], giver: int, taker: int, unit: int
) -> bool:
    """Swap images of two folds where it lowers the sum of squared `excess`, in place; return whether any was."""
    gap = excess[giver] - excess[taker]  # [C]
    pull, costs = columns @ gap, np.diff(columns.indptr) * float(unit)  # [N]
    leaving = _best(pull - costs, np.flatnonzero(folds == giver))
    entering = _best(-pull - costs, np.flatnonzero(folds == taker))
    if not (len(leaving) and len(entering)):  # a sample may hold no image of a small fold
        return False
    given, taken = columns[leaving].toarray(), columns[entering].toarray()
    # A swap of a for b lowers half the sum of squares by unit * (gap (a - b) - unit |a - b|^2).
    penalty = unit * (given.sum(axis=1)[:, None] + taken.sum(axis=1) - 2 * given @ taken.T)
    swapped = False
    while True:
        gains = (given @ gap)[:, None] - taken @ gap - penalty
        one, other = divmod(int(gains.argmax()), len(entering))
        if gains[one, other] <= 0:
            return swapped
        change = unit * (given[one] - taken[other])
        excess[giver] -= change
        excess[taker] += change
        gap -= 2 * change
        folds[leaving[one]], folds[entering[other]] = taker, giver
        penalty[one], penalty[:, other] = np.inf, np.inf
        swapped = True


def _best(gains: NDArray[np.float64], images: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the images with the largest gain from moving; ties are broken the same way on every machine."""
    chosen = gains[images]
    if len(chosen) <= NUM_CANDIDATES:
        return images
    limit = np.partition(chosen, -NUM_CANDIDATES)[-NUM_CANDIDATES]
    kept = np.concatenate([np.flatnonzero(chosen > limit), np.flatnonzero(chosen == limit)])
    return images.take(kept[:NUM_CANDIDATES])


def hold_out(
    dataset: ImageDataset,
    *,
    val_fraction: float | None = None,
    part: Literal["train", "val"] | None = None,
    seed: int = 0,
    limit: int | None = None,
) -> ImageDataset:
    """Hold out images for validation, stratified over the labels, or limit their number.

    Test images stay test images: of data with one training split (its name begins with "train") and no validation
    split, only the training split is divided.

    Args:
        dataset: The images.
        val_fraction: Fraction of images to hold out as split ``val``; the rest become ``train``. Existing splits are
            replaced, except where only one of them is divided.
        part: Split to return (default: both).
        seed: Seed of the draws.
        limit: Largest number of images to return afterwards, drawn at random, in their original order.

    Returns:
        The dataset, unchanged by default.

    Raises:
        ConfigError: `part` without `val_fraction`, or a number out of range.

    Examples:
        >>> from manylabel.data.sources import Files
        >>> from manylabel.targets import Targets
        >>> from manylabel.types import LabelSpace
        >>> images = Files("photos", [f"{number}.jpg" for number in range(10)])
        >>> targets = Targets.from_lists([[number % 2] for number in range(10)], num_labels=2)
        >>> dataset = ImageDataset(images, targets, LabelSpace(["cat", "dog"]))
        >>> len(hold_out(dataset, val_fraction=0.2, part="train")), len(hold_out(dataset, limit=3))
        (8, 3)
    """
    if part is not None and val_fraction is None:
        raise ConfigError(f"part={part} needs val_fraction, such as val_fraction=0.2,part={part}")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1 image, got {limit}")
    if val_fraction is not None:
        divided, others = _to_divide(dataset)
        train, val = stratified_split(dataset.targets[divided], val_fraction=val_fraction, seed=seed)
        dataset = replace(dataset, splits={"train": divided[train], "val": divided[val], **others})
    if part is not None:
        dataset = dataset.split(part)
    if limit is not None and limit < len(dataset):
        drawn = np.random.default_rng(seed).choice(len(dataset), size=limit, replace=False)
        dataset = dataset.subset(np.sort(drawn))
    return dataset


def _to_divide(dataset: ImageDataset) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]:
    """Return the positions of the images to hold out from, and the splits that stay unchanged."""
    splits = {name: members for name, members in dataset.splits.items() if len(members)}
    train = dataset.splits_like("train")
    if len(train) != 1 or dataset.splits_like("val"):
        return np.arange(len(dataset)), {}
    return np.sort(splits[train[0]]), {name: members for name, members in splits.items() if name != train[0]}
