"""Claims of the papers that compare two arms by a metric."""

from dataclasses import dataclass

from benchmarks.claims.verdict import Kind

SMALL = ("VOC", "small COCO")  # query heads on all 10,000 images of COCO would take hours
LARGE = ("VOC", "COCO")
BOTH_REGIMES = ("VOC", "VOC, top trained")


@dataclass(frozen=True)
class Claim:
    """A claim about two arms.

    Args:
        number: Number of the claim.
        text: The claim.
        paper: The paper's result and its source.
        first: Arm claimed to be better or no worse.
        second: The other arm.
        kind: ``"better"``, or ``"no worse"`` by more than a margin.
        margin: Margin in points.
        measure: Metric; a key of `STATISTICS`.
        data: Datasets to test on.
    """

    number: int
    text: str
    paper: str
    first: str
    second: str
    kind: Kind = "better"
    margin: float = 0.0
    measure: str = "mAP"
    data: tuple[str, ...] = SMALL


def no_worse(
    number: int, text: str, paper: str, arms: tuple[str, str], *, margin: float = 0.1, data: tuple[str, ...] = SMALL
) -> Claim:
    """Return the claim that the first arm loses at most a margin."""
    full_text = f"{text} (at most {margin:g} worse)"
    return Claim(number, full_text, paper, *arms, kind="no worse", margin=margin, data=data)


CLAIMS = (
    Claim(
        1,
        "ML-Decoder beats global average pooling",
        "+1.1 (Table 1)",
        "decoder",
        "linear",
        data=(*LARGE, "small COCO", "VOC, top trained"),
    ),
    no_worse(2, "Removing self-attention costs nothing", "0.0 (Table 1)", ("decoder", "decoder-self-attention")),
    no_worse(
        3,
        "Fixed random queries are as good as learnable ones",
        "the same (Section 3.1)",
        ("decoder", "decoder-learnable"),
    ),
    no_worse(
        3, "Word queries are as good as fixed random ones", "the same (Section 3.1)", ("decoder-words", "decoder")
    ),
    no_worse(4, "Group decoding with N/K = 4 loses nothing", "-0.1 (Table 1)", ("decoder-groups", "decoder")),
    no_worse(
        6,
        "A second layer does not help: one is as good",
        "Table 10 of an appendix that is not public",
        ("decoder", "decoder-two-layers"),
    ),
    Claim(
        9,
        "ML-Decoder helps where every image has one label",
        "better on ImageNet (Section 4.3, Figure 6; no number in the text)",
        "decoder",
        "linear",
        measure="top-1 accuracy",
        data=("VOC, one label",),
    ),
    Claim(
        10,
        "Hybrid sharing beats plain layers (HSQ-Linear)",
        "+0.8 (Table 1)",
        "sharing",
        "sharing-linear",
        data=BOTH_REGIMES,
    ),
    Claim(10, "HSQ-Linear beats Query2Label", "+0.9 (Table 1)", "sharing-linear", "query2label", data=BOTH_REGIMES),
    Claim(
        10,
        "Without shared experts it is worse than Query2Label",
        "-3.3 (Table 1)",
        "query2label",
        "sharing-none",
        data=BOTH_REGIMES,
    ),
    Claim(
        11,
        "HSQ narrows the gap between similar labels",
        "bicycle and motorbike (Figure 4)",
        "sharing",
        "query2label",
        measure="gap between similar labels",
        data=BOTH_REGIMES,
    ),
    Claim(
        13,
        "RM beats a linear probe trained the same way",
        "+1.9 to +7.6 on COCO, -0.3 and +2.3 on VOC (Table 2)",
        "mixup-1",
        "linear-as-mixup",
        data=LARGE,
    ),
    Claim(
        13,
        "RM improves recall",
        "+3.1 to +19.9 CR (Table 1)",
        "mixup-1",
        "linear-as-mixup",
        measure="recall of the top 3",
        data=LARGE,
    ),
    Claim(
        13,
        "RM improves hard instances",
        "stated without numbers (Section 3)",
        "mixup-1",
        "linear-as-mixup",
        measure="mAP of small objects",
        data=LARGE,
    ),
    no_worse(
        14,
        "The block that RM mixes in matters little: the third is as good as the first",
        "-1.0 to 0.0 (Table 2)",
        ("mixup-3", "mixup-1"),
        margin=1.0,
        data=LARGE,
    ),
    no_worse(14, "... and the second", "-0.3 to 0.0 (Table 2)", ("mixup-2", "mixup-1"), margin=1.0, data=LARGE),
    Claim(14, "RM's stable form beats a linear probe", "not tried", "mixup", "linear-one-view", data=("VOC",)),
    Claim(
        14,
        "RM's stable form improves small objects",
        "not tried",
        "mixup",
        "linear-one-view",
        measure="mAP of small objects",
        data=("VOC",),
    ),
    Claim(
        14,
        "RM's stable form improves the recall of small objects",
        "not tried",
        "mixup",
        "linear-one-view",
        measure="recall of small objects in the top 3",
        data=("VOC",),
    ),
    Claim(
        14,
        "RM's stable form under ML-Decoder beats ML-Decoder",
        "not tried",
        "stable-decoder",
        "decoder-one-view",
        data=("VOC",),
    ),
    Claim(
        14,
        "RM's stable form under ML-Decoder improves small objects",
        "not tried",
        "stable-decoder",
        "decoder-one-view",
        measure="mAP of small objects",
        data=("VOC",),
    ),
    Claim(
        14,
        "RM's stable form under ML-Decoder improves the recall of small objects",
        "not tried",
        "stable-decoder",
        "decoder-one-view",
        measure="recall of small objects in the top 3",
        data=("VOC",),
    ),
    Claim(
        17,
        "RM (the paper's form) under ML-Decoder beats ML-Decoder",
        "not tried",
        "mixed-decoder",
        "decoder-one-view",
        data=("VOC",),
    ),
    Claim(
        17, "RM (the paper's form) under HSQ beats HSQ", "not tried", "mixed-sharing", "sharing-one-view", data=("VOC",)
    ),
)
