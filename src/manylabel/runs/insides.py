"""What a report says of the inside of a head: experts of Hybrid Sharing Query, alpha of representation mixup."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure as Drawing
from matplotlib.text import Text as DrawnText

from manylabel.evaluation.pages.words import plural
from manylabel.explain import draw_experts, expert_load, mixup_scale
from manylabel.heads.traits import as_expert_head, as_mixup_head
from manylabel.page import INK, Figure, Heading, Note, Part, Table
from manylabel.runs.judging import JudgedRun

__all__ = ["follow_page", "head_parts"]

_MOST_ROWS = 20
_PICTURES = 128


def follow_page(drawing: Drawing) -> Drawing:
    """Give the text of a drawing the ink of the page, which is dark by day and light by night."""
    for text in drawing.findobj(DrawnText):
        if isinstance(text, DrawnText) and text.get_color() != "white":
            text.set_color(INK)
    return drawing


def head_parts(judged: JudgedRun) -> Iterator[Part]:
    """Look into the head of a run, where it has something to show.

    Args:
        judged: The run; some of its held-out pictures go through the model again.
    """
    head = judged.model.head
    if as_expert_head(head):
        load = expert_load(judged.model, judged.held_out, limit=_PICTURES)
        yield Heading("Experts")
        yield Note(load.in_words(), kind="warning" if load.dead else "good")
        caption = (
            f"How much each label listens to each expert: the mean over {plural(load.num_images, 'image')}, in log "
            "colours. The last row is the mean over labels, the last column each label's own."
        )
        yield Figure(follow_page(draw_experts(load)), caption)
    if as_mixup_head(head):
        scale = mixup_scale(judged.model, judged.held_out, limit=_PICTURES)
        yield Heading("What earlier layers add")
        yield Note(scale.in_words())
        yield Table(
            ["label", "alpha"],
            [[name, f"{value:.3g}"] for name, value in scale.by_label[:_MOST_ROWS]],
            caption="Mean share of the earlier layers over the pictures of a label, the largest first.",
        )
