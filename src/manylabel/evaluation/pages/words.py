"""How numbers and pictures are put into words on the pages and in the terminal."""

from collections.abc import Iterable, Sequence

from manylabel.evaluation.estimate import Estimate
from manylabel.evaluation.measures import MEASURES
from manylabel.page import Cell, Share
from manylabel.types import LabelSpace, Tag

__all__ = ["describe_tags", "interval", "number", "plural", "shown", "some", "with_interval"]


def number(value: float, *, measure: str = "mAP", signed: bool = False) -> str:
    """Return a value of a measure: in per cent where it is a share.

    Examples:
        >>> number(0.61234), number(0.02, signed=True), number(3.25, measure="coverage")
        ('61.2', '+2.0', '3.25')
    """
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.1f}" if MEASURES[measure].is_share else f"{value:{sign}.2f}"


def interval(estimate: Estimate, *, measure: str = "mAP", signed: bool = False) -> str:
    """Return the interval of an estimate; nothing where it has none.

    Examples:
        >>> interval(Estimate(0.5, 0.4, 0.6)), interval(Estimate(0.5))
        ('40.0 to 60.0', '')
    """
    if estimate.low is None or estimate.high is None:
        return ""
    low, high = (number(bound, measure=measure, signed=signed) for bound in (estimate.low, estimate.high))
    return f"{low} to {high}"


def with_interval(estimate: Estimate) -> str:
    r"""Return a share in per cent with its interval, as one word that does not break.

    Examples:
        >>> ascii(with_interval(Estimate(0.5, 0.4, 0.6)))
        "'50.0\\xa0(40.0\\u201360.0)'"
    """
    if estimate.low is None or estimate.high is None:
        return number(estimate.value)
    return f"{number(estimate.value)}\u00a0({number(estimate.low)}\u2013{number(estimate.high)})"


def shown(value: float, *, measure: str) -> Cell:
    """Return the cell of a table for a value of a measure.

    Examples:
        >>> shown(0.5, measure="mAP"), shown(3.254, measure="coverage")
        (Share(value=0.5), 3.25)
    """
    return Share(value) if MEASURES[measure].is_share else round(value, 2)


def plural(count: int, thing: str) -> str:
    """Return a count and its thing.

    Examples:
        >>> plural(1, "picture"), plural(1200, "picture")
        ('1 picture', '1,200 pictures')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def some(names: Sequence[str], *, at_most: int = 12) -> str:
    """Return the first few names.

    Examples:
        >>> some(["a", "b", "c"], at_most=2)
        'a, b and 1 more'
    """
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more


def describe_tags(tags: Iterable[Tag], labels: LabelSpace, *, at_most: int = 4) -> str:
    """Return labels with their scores in per cent.

    Examples:
        >>> describe_tags([Tag("cat", 0.914)], LabelSpace(["cat"]))
        'cat 91 %'
    """
    return some([f"{labels.display(tag.label)} {100 * tag.score:.0f} %" for tag in tags], at_most=at_most)
