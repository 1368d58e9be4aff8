"""Draw the diagrams of docs/methods: boxes for what is computed, arrows with the shapes of what flows between them.

    python tools/draw_methods.py [FOLDER] [--png]

Each goes to method-NAME.svg in FOLDER (docs/images when left out), the same bytes every time; ``--png`` draws PNG files
instead, to look at. Blue is what comes from the image, orange from the labels, green what computes, red what comes
out, grey what is frozen or only stands beside.

A pair of strings in a box is its name and what is said of it below, in small letters. Lengths are in inches.
"""

# ruff: noqa: RUF001 (signs of formulas, not mistyped letters)

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path

import matplotlib as mpl
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Line

# Okabe and Ito's palette, which colour-blind readers can tell apart; boxes are filled with a tint of their edge.
IMAGE, LABELS, LAYER, ANSWER, ASIDE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#7F7F7F"
INK, FAINT = "#222222", "#555555"
WIDTH, SMALL = 7.6, 6.8
STYLE = {
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # the widest first: others leave room
    "svg.fonttype": "none",
    "svg.hashsalt": "manylabel",
    "text.parse_math": False,
}
Point = tuple[float, float]
Name = str | tuple[str, str]


@dataclass(frozen=True)
class Box:
    """A box by its middle and its size."""

    x: float
    y: float
    width: float
    height: float

    def side(self, where: str, along: float = 0.0) -> Point:
        """Return the middle of a side, ``n``, ``e``, ``s`` or ``w``, or a place so far along it."""
        right, up = {"n": (0, 1), "e": (1, 0), "s": (0, -1), "w": (-1, 0)}[where]
        across = (along, 0.0) if up else (0.0, along)
        return self.x + right * self.width / 2 + across[0], self.y + up * self.height / 2 + across[1]


class Canvas:
    """A white panel to draw on; it stays white on a dark page.

    Args:
        height: Its height; all are equally wide.
    """

    def __init__(self, height: float) -> None:
        self.figure = Figure(figsize=(WIDTH, height), facecolor="none")
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, height))
        self.axes.set_axis_off()
        self._frame(Box(WIDTH / 2, height / 2, WIDTH - 0.04, height - 0.04), edge="#D0D0D0", fill="white")

    def box(self, x: float, y: float, name: Name, colour: str, *, width: float = 0.95, height: float = 0.5) -> Box:
        """Draw a box around a name."""
        box = Box(x, y, width, height)
        tint = tuple(0.16 * channel + 0.84 for channel in to_rgb(colour))
        self._frame(box, edge=colour, fill=tint)
        title, detail = (name, "") if isinstance(name, str) else name
        lines = [(line, 8.0, INK) for line in title.split("\n")]
        lines += [(line, SMALL, FAINT) for line in detail.split("\n") if line]
        for place, (line, size, ink) in enumerate(lines):
            self.text(x, y + 0.145 * ((len(lines) - 1) / 2 - place), line, size=size, colour=ink)
        return box

    def row(self, y: float, *boxes: tuple[float, Name, str], width: float = 0.95, height: float = 0.5) -> list[Box]:
        """Draw boxes side by side, each given by its middle, name and colour."""
        return [self.box(x, y, name, colour, width=width, height=height) for x, name, colour in boxes]

    def area(self, x: float, y: float, width: float, height: float, name: str) -> None:
        """Draw a dashed frame with a name in its upper left corner."""
        self._frame(Box(x, y, width, height), edge=ASIDE, fill="none", dashed=True)
        self.text(x - width / 2 + 0.09, y + height / 2 - 0.13, name, size=SMALL, colour=FAINT, align="left")

    def arrow(self, *points: Point, shape: str = "", dashed: bool = False) -> None:
        """Draw an arrow through points; the shape stands above its first piece, or right of it if that is upright."""
        head, style = "-|>,head_length=3.2,head_width=1.7", "--" if dashed else "-"
        self.axes.add_patch(FancyArrowPatch(path=Line(points), arrowstyle=head, color=FAINT, lw=0.9, ls=style))
        (x, y), (end_x, end_y) = points[:2]
        if y == end_y:
            self.text((x + end_x) / 2, y + 0.09, shape, size=SMALL, colour=FAINT)
        else:
            self.text(x + 0.06, (y + end_y) / 2, shape, size=SMALL, colour=FAINT, align="left")

    def chain(self, boxes: Sequence[Box], shapes: Sequence[str] = ()) -> None:
        """Draw an arrow from each box to the next, with the shapes that are given."""
        for (start, end), shape in zip_longest(pairwise(boxes), shapes, fillvalue=""):
            self.arrow(start.side("e"), end.side("w"), shape=shape)

    def text(
        self, x: float, y: float, text: str, *, size: float = 8.0, colour: str = INK, align: str = "center"
    ) -> None:
        """Write one line."""
        self.axes.text(x, y, text, fontsize=size, color=colour, ha=align, va="center_baseline")

    def _frame(self, box: Box, *, edge: str, fill: str | tuple[float, ...], dashed: bool = False) -> None:
        corner = (box.x - box.width / 2, box.y - box.height / 2)
        rounded = "round,pad=0,rounding_size=0.07"
        style = "--" if dashed else "-"
        self.axes.add_patch(
            FancyBboxPatch(
                corner, box.width, box.height, boxstyle=rounded, edgecolor=edge, facecolor=fill, lw=0.9, ls=style
            )
        )


def ml_decoder() -> Canvas:
    """K queries read the map; each makes the logits of its group of labels."""
    canvas = Canvas(1.9)
    main = canvas.row(
        1.45,
        (0.58, "feature\nmap", IMAGE),
        (1.98, ("tokens", "linear, ReLU"), LAYER),
        (3.38, "cross-\nattention", LAYER),
        (4.66, "feed-\nforward", LAYER),
        (5.94, "group\nprojection", LAYER),
        (7.08, "logits", ANSWER),
        width=0.82,
    )
    canvas.chain(main, ["C × H W", "H W × D", "K × D", "K × D", "N"])
    queries = canvas.box(main[2].x, 0.5, ("K queries", "random, learned\nor made from text"), LABELS, width=1.15)
    groups = canvas.box(
        main[4].x, 0.5, ("K groups of labels", "drawn at random,\nat most g = ⌈N / K⌉ each"), LABELS, width=1.45
    )
    canvas.arrow(queries.side("n"), main[2].side("s"), shape="K × D")
    canvas.arrow(groups.side("n"), main[4].side("s"), shape="K × D × g weights")
    return canvas


def hybrid_sharing() -> Canvas:
    """The whole head above; below, what one layer does for one label."""
    canvas = Canvas(3.75)
    main = canvas.row(
        3.3,
        (0.58, "final\nmap", IMAGE),
        (1.98, "1 × 1\nconvolution", LAYER),
        (3.4, "query\ntransformer", LAYER),
        (4.74, "sharing\nlayers", LAYER),
        (6.0, ("linear", "for all labels"), LAYER),
        (7.08, "logits", ANSWER),
        width=0.84,
    )
    canvas.chain(main, ["C × H W", "D × H W", "N × D", "N × dₒ", "N"])
    queries = canvas.box(main[2].x, 2.55, ("N queries", "learned"), LABELS, height=0.4)
    canvas.arrow(queries.side("n"), main[2].side("s"), shape="N × D")

    canvas.area(WIDTH / 2, 1.14, WIDTH - 0.3, 2.0, "one Hybrid Sharing Layer, for label i")
    canvas.arrow(main[3].side("s"), (main[3].x, 2.14), dashed=True)
    given = canvas.box(0.75, 1.1, "vector of\nlabel i", IMAGE, width=0.8)
    own, shared, gate = (
        canvas.box(2.95, y, name, colour, width=1.7, height=0.42)
        for y, name, colour in [
            (1.7, ("own experts", "nₜ, of label i alone"), LABELS),
            (1.1, ("shared experts", "nₛ, the same for all labels"), LAYER),
            (0.5, ("gate of label i", "softmax"), LABELS),
        ]
    )
    mean = canvas.box(5.25, 1.1, ("weighted mean", "of the experts’ ReLU"), LAYER, width=1.3)
    made = canvas.box(6.9, 1.1, "vector of\nlabel i", IMAGE, width=0.8)
    canvas.chain([given, shared, mean, made], ["D", "nₛ × dₒ", "dₒ"])
    for box, shape, edge in [(own, "nₜ × dₒ", "n"), (gate, "nₜ + nₛ", "s")]:
        canvas.arrow((1.85, given.y), (1.85, box.y), box.side("w"))
        canvas.arrow(box.side("e"), (mean.x, box.y), mean.side(edge), shape=shape)
    return canvas


def representation_mixup() -> Canvas:
    """A hint from an earlier stage goes around the later ones."""
    canvas = Canvas(2.75)
    main = canvas.row(
        2.25,
        (0.65, "image", IMAGE),
        (2.0, ("stages to l", "frozen"), ASIDE),
        (3.8, ("later stages", "frozen"), ASIDE),
        (5.3, "average", LAYER),
    )
    canvas.chain(main, ["", "Cₗ × Hₗ Wₗ", "C × H W"])
    _, earlier, later, final = main
    summary = canvas.box(3.8, 0.5, ("summary", "average, linear, sigmoid"), LAYER, width=1.5)
    share = canvas.box(final.x, 1.37, ("share α", "linear, sigmoid"), LAYER)
    mixture = canvas.box(6.75, 1.37, ("mixture", "α ĥ + (1 − α) z"), LAYER, width=1.1)
    answer = canvas.box(6.75, 0.5, ("linear", "N logits"), ANSWER, width=1.1)
    branch = (earlier.side("e")[0] + later.side("w")[0]) / 2
    canvas.arrow((branch, earlier.y), (branch, summary.y), summary.side("w"))
    canvas.arrow(final.side("e"), (mixture.x, final.y), mixture.side("n"), shape="z: C")
    canvas.arrow(final.side("s"), share.side("n"), shape="C")
    canvas.arrow(share.side("e"), mixture.side("w"), shape="1")
    turn = (5.98, mixture.side("w", -0.15)[1])
    canvas.arrow(summary.side("e"), (turn[0], summary.y), turn, mixture.side("w", -0.15), shape="hint ĥ: C")
    canvas.arrow(mixture.side("s"), answer.side("n"), shape="C")
    return canvas


def self_distillation() -> Canvas:
    """Two ways to divide the labels, teachers for each, one student."""
    canvas = Canvas(3.1)
    labels, graph = canvas.row(
        2.1,
        (0.65, ("labels y", "of all images"), LABELS),
        (1.85, ("label graph", "S, then P⁺, P⁻"), LABELS),
        width=1.02,
    )
    canvas.chain([labels, graph])
    loss = canvas.box(6.9, 1.55, ("loss", "ASL(s, y)\n+ ½ ‖s − t⁺‖²\n+ ½ ‖s − t⁻‖²"), ANSWER, width=1.05, height=0.8)
    for y, sign, name, edge in [(2.65, "⁺", "come together", "n"), (1.55, "⁻", "stay apart", "w")]:
        side = canvas.row(
            y,
            (3.2, (name, f"k subsets C, by P{sign}"), LABELS),
            (4.42, ("k teachers", "on images with\none of their labels"), LAYER),
            (5.6, (f"merged t{sign}", "in the order\nof the labels"), ANSWER),
            width=1.02,
        )
        canvas.arrow(graph.side("e"), (2.5, graph.y), (2.5, y), side[0].side("w"))
        canvas.chain(side)
        corner = [(loss.x, y)] if edge == "n" else []
        canvas.arrow(side[-1].side("e"), *corner, loss.side(edge), shape="N")
    images, student = canvas.row(0.5, (0.65, "images", IMAGE), (4.42, ("student", "of all labels"), LAYER), width=1.02)
    canvas.arrow(images.side("e"), student.side("w"))
    canvas.arrow(student.side("e"), (loss.x, student.y), loss.side("s"), shape="s: N")
    return canvas


def zero_shot() -> Canvas:
    """Queries made from text, and ConSE below."""
    canvas = Canvas(3.95)
    seen = canvas.box(0.7, 3.62, ("seen labels", "trained on"), LABELS, height=0.4)
    new = canvas.box(0.7, 3.08, ("unseen labels", "asked for later"), LABELS, height=0.4)
    encoder, query = canvas.row(
        3.35, (2.2, ("text encoder", "frozen"), ASIDE), (3.8, ("queries", "linear, ReLU"), LAYER)
    )
    canvas.arrow(seen.side("e"), (1.42, seen.y), (1.42, encoder.y), encoder.side("w"))
    canvas.arrow(new.side("e"), (1.42, new.y), (1.42, encoder.y), encoder.side("w"), dashed=True)
    canvas.chain([encoder, query], ["t: N × E"])
    main = canvas.row(
        2.2,
        (0.7, "feature\nmap", IMAGE),
        (2.2, ("tokens", "linear, ReLU"), LAYER),
        (3.8, ("cross-attention", "feed-forward"), LAYER),
        (5.4, ("projection", "one for all labels"), LAYER),
        (6.85, "logits", ANSWER),
    )
    canvas.chain(main, ["C × H W", "H W × D", "h: N × D", "N"])
    canvas.arrow(query.side("s"), main[2].side("n"), shape="q: N × D")

    canvas.area(WIDTH / 2, 0.86, WIDTH - 0.3, 1.42, "ConSE, for comparison")
    conse = canvas.row(
        0.98,
        (0.9, ("average", "over places"), LAYER),
        (2.3, ("linear", "for seen labels"), LAYER),
        (3.8, ("mixture m", "of the ten best"), LAYER),
        (5.4, ("cosine", "with each label"), LAYER),
        (6.85, "scores", ANSWER),
        height=0.44,
    )
    canvas.chain(conse, ["C", "seen", "E", "N"])
    for box, name in [(conse[2], "t of seen labels"), (conse[3], "t of any labels")]:
        text = canvas.box(box.x, 0.34, name, LABELS, width=1.2, height=0.25)
        canvas.arrow(text.side("n"), box.side("s"))
    return canvas


def baselines() -> Canvas:
    """Four heads, from one map to N logits."""
    canvas = Canvas(4.75)
    source = canvas.box(0.6, 2.36, ("final map", "C × H W"), IMAGE, width=0.85)
    first, second, third = 2.33, 4.05, 5.55
    heads: list[tuple[str, list[tuple[float, Name]], list[str]]] = [
        ("linear", [(first, ("average", "over places")), (third, "linear")], ["C", "N"]),
        ("CSRA", [(first, ("scores", "1 × 1 convolution")), (third, "sum")], []),
        (
            "Query2Label",
            [
                (first, ("encoder", "1 layer, positions")),
                (second, ("decoder", "2 layers, N queries")),
                (third, ("linear", "one per label")),
            ],
            ["H W × D", "N × D", "N"],
        ),
        (
            "ResNet101-TF",
            [
                (first, ("linear", "and N label tokens")),
                (second, ("encoder", "3 layers")),
                (third, ("linear", "for all labels")),
            ],
            ["(N+HW) × D", "N × D", "N"],
        ),
    ]
    for y, (name, layers, shapes) in zip((4.08, 2.93, 1.78, 0.63), heads, strict=True):
        canvas.area(4.57, y + 0.04, 5.78, 1.05, name)
        boxes = canvas.row(y, *((x, label, LAYER) for x, label in layers), (6.85, "logits", ANSWER), width=1.05)
        canvas.arrow(source.side("e"), (1.33, source.y), (1.33, y), boxes[0].side("w"))
        if name != "CSRA":
            canvas.chain(boxes, shapes)
            continue
        scores, total, logits = boxes
        canvas.chain([total, logits], ["N"])
        steps = [(0.25, ("mean", "over places"), "N × H W"), (-0.25, ("attention", "softmax of T s, × λ"), "")]
        for step, label, shape in steps:
            pooled = canvas.box(second, y + step, label, LAYER, width=1.05, height=0.4)
            canvas.arrow(scores.side("e"), (3.4, y), (3.4, pooled.y), pooled.side("w"), shape=shape)
            canvas.arrow(pooled.side("e"), (4.8, pooled.y), (4.8, y), total.side("w"), shape="N")
    return canvas


DIAGRAMS: dict[str, Callable[[], Canvas]] = {
    "ml-decoder": ml_decoder,
    "hybrid-sharing": hybrid_sharing,
    "representation-mixup": representation_mixup,
    "self-distillation": self_distillation,
    "zero-shot": zero_shot,
    "baselines": baselines,
}


def main() -> None:
    """Draw all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1] / "docs" / "images")
    parser.add_argument("--png", action="store_true")
    arguments = parser.parse_args()
    kind, details = ("png", {"dpi": 150}) if arguments.png else ("svg", {"metadata": {"Creator": None, "Date": None}})
    for name, draw in DIAGRAMS.items():
        with mpl.rc_context(STYLE):
            draw().figure.savefig(arguments.folder / f"method-{name}.{kind}", **details)


if __name__ == "__main__":
    main()
