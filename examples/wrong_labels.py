"""Remove some labels of generated scenes, find them again, and write a corrected table."""

import tempfile
from dataclasses import replace
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
    fewer = truth.targets.with_values(rows, columns, np.zeros(40))  # forty labels that somebody forgot
    images = data.ImageDataset(truth.images, fewer, truth.labels, name="scenes")
    data.write_table(images, folder / "forgotten.csv")

    dataset = data.load(folder / "forgotten.csv")
    backbone = Backbone("offline:efficientnet_lite0", frozen=True)
    found = cross_validate(dataset, backbone, head=LinearClassifier)  # takes seconds
    report = find_label_issues(found.scored)
    print(f"{len(report.issues)} labels to look at")
    values, _ = truth.targets.dense()  # in real life, people look at the images and delete the rows they disagree with
    agreed = [
        issue
        for issue in report.issues
        if (issue.suggested == "present") == values[issue.index, truth.labels.index(issue.label)]
    ]
    write_issues(replace(report, issues=tuple(agreed)), folder / "issues.csv")
    changes = data.fix(folder / "forgotten.csv", folder / "fixed.csv", accept=folder / "issues.csv")
    print(f"{len(changes)} of the 40 removed labels are back, such as: {changes[0]}")


if __name__ == "__main__":
    main()
