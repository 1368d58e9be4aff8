"""Label issues as a table that `data.fix` applies, and as a page with images and heat maps."""

from pathlib import Path

import polars as pl

from manylabel import page
from manylabel.data import ImageDataset
from manylabel.data.readers.table import WRITERS, refuse_table
from manylabel.errors import ImageError
from manylabel.explain import heat_thumbnail
from manylabel.label_issues.confident_learning import IssueReport, LabelIssue
from manylabel.label_issues.cross_validation import CrossValidated
from manylabel.label_text import protect_cell, valid_unicode
from manylabel.page import Fraction, plural
from manylabel.storage import replacing

COLUMNS = ("image", "label", "given", "suggested", "score")
_MOST_IMAGES = 100  # on a page: about two megabytes
_MOST_ROWS = 2_000


def write_issues(report: IssueReport, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the issues as a table; delete the rows you disagree with, and pass the rest to `data.fix`.

    Args:
        report: The issues.
        out: The table: ``.csv``, ``.jsonl`` or ``.parquet``.
        overwrite: Whether to replace an existing file.

    Raises:
        ConfigError: `out` has another ending.
        OutputExistsError: `out` exists.

    Examples:
        >>> import tempfile
        >>> issue = LabelIssue("a.jpg", "cat", "present", "absent", score=0.75, index=0)
        >>> report = IssueReport("pets", 1, 1, (issue,), wrong_fraction=1.0, missing_fraction=0.0)
        >>> write_issues(report, Path(tempfile.mkdtemp()) / "issues.csv").read_text().split()
        ['image,label,given,suggested,score', 'a.jpg,cat,present,absent,0.75']
    """
    out = Path(out)
    refuse_table(out, overwrite=overwrite)
    rows = {name: [getattr(issue, name) for issue in report.issues] for name in COLUMNS}
    rows["image"] = list(map(valid_unicode, rows["image"]))
    frame = pl.DataFrame(rows, schema={name: pl.Float64 if name == "score" else pl.String for name in COLUMNS})
    if out.suffix.lower() == ".csv":  # no name may become a spreadsheet formula
        frame = frame.with_columns(pl.col("image", "label").map_elements(protect_cell, return_dtype=pl.String))
    with replacing(out, overwrite=overwrite) as temporary:
        WRITERS[out.suffix.lower()](frame, temporary)
    return out


def issues_page(report: IssueReport, dataset: ImageDataset, found: CrossValidated) -> page.Page:
    """Show the issues as a page: the most probable ones with image and heat map, then all as a table.

    Args:
        report: The issues.
        dataset: The checked dataset.
        found: The models; each explains the images that it was not trained on.
    """
    wrong, missing = report.num_wrong, len(report.issues) - report.num_wrong
    tiles = [
        page.tile(report.num_images, "image", f"{plural(report.num_labels, 'label')} checked"),
        (f"{wrong:,}", "likely wrong", f"about {100 * report.wrong_fraction:.1f} % of the present labels"),
        (
            f"{missing:,}",
            "likely missing",
            f"about {100 * report.missing_fraction:.1f} % of the true labels",
        ),
    ]
    names = {issue.label: dataset.labels.display(issue.label) for issue in report.issues}
    rows: list[list[page.Cell]] = [
        [issue.image, names[issue.label], issue.given, issue.suggested, Fraction(issue.score)]
        for issue in report.issues[:_MOST_ROWS]
    ]
    drawn = [
        _thumbnail(issue, number, dataset, found) for number, issue in enumerate(report.issues[:_MOST_IMAGES], start=1)
    ]
    parts = [
        page.tiles(tiles),
        page.text(
            "Each image was scored by a model that was not trained on it. The score is the estimated probability that "
            "the given label is wrong. Right: where the model sees the label."
        ),
        *map(page.note, report.notes),
        page.heading("Most probable errors"),
        page.thumbnails(drawn),
        page.heading("All findings"),
        page.table(list(COLUMNS), rows),
    ]
    return page.Page(f"Labels of {report.dataset}", f"{plural(len(report.issues), 'label')} to look at", parts)


def _thumbnail(issue: LabelIssue, number: int, dataset: ImageDataset, found: CrossValidated) -> page.Thumbnail:
    label, kind = dataset.labels.display(issue.label), "wrong" if issue.given == "present" else "missing"
    given = dataset.describe(issue.index) or "no label"
    caption = f"{number}. {kind}? {label} ({100 * issue.score:.0f} %)\n{issue.image}\n{given}"
    try:
        return heat_thumbnail(found.model_of(issue.index), dataset, issue.index, issue.label, caption=caption)
    except (ImageError, OSError):
        return page.Thumbnail(b"", caption)
