"""Flip some labels of generated scenes, find them again, and write a corrected table."""

import tempfile
from pathlib import Path

import numpy as np

from manylabel import Backbone, data
from manylabel.heads import LinearClassifier
from manylabel.label_issues import cross_validate, find_label_issues, write_issues


def main() -> None:
    """Run the example."""
    folder = Path(tempfile.mkdtemp())
    truth = data.load(data.write_scenes(folder / "scenes", 300))
    present, generator = np.argwhere(truth.targets.present.toarray()), np.random.default_rng(0)
    rows, columns = generator.choice(present, 40, replace=False).T
    flipped = truth.targets.with_values(rows, columns, np.zeros(40))  # forty labels that somebody forgot
    images = data.ImageDataset(truth.images, flipped, truth.labels, name="scenes")
    data.write_table(images, folder / "forgotten.csv")

    dataset = data.load(folder / "forgotten.csv")
    backbone = Backbone("offline:efficientnet_lite0", frozen=True)
    found = cross_validate(dataset, backbone, head=LinearClassifier)  # takes seconds
    report = find_label_issues(found.scored)
    missing = {(issue.index, truth.labels.index(issue.label)) for issue in report.issues if issue.given == "absent"}
    hits = missing & set(zip(rows.tolist(), columns.tolist(), strict=True))
    print(f"{len(missing)} labels look missing; {len(hits)} of the 40 removed ones are among them")
    write_issues(report, folder / "issues.csv")
    changes = data.fix(folder / "forgotten.csv", folder / "fixed.csv", accept=folder / "issues.csv")
    print(f"{len(changes)} changes, such as: {changes[0]}")


if __name__ == "__main__":
    main()
