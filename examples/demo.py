"""`make demo`: draw pictures, look for what is wrong with them, and leave a page to look at."""

from pathlib import Path

from manylabel import data
from manylabel.data.check.page import check_page

FOLDER = Path("demo")  # made by this script, and made anew each time


def main() -> None:
    """Run the demo."""
    table = data.write_scenes(FOLDER / "scenes", 400, seed=0, unknown=0.05, overwrite=True)
    dataset = data.load(f"csv:{table},val_fraction=0.2")
    print(f"Drew {len(dataset)} pictures with {len(dataset.labels)} labels: {table.parent}")

    report = data.check(dataset)
    for sentence in [*report.problems, *report.warnings]:
        print(f"  - {sentence}")
    page = check_page(report, dataset).write(FOLDER / "check.html", overwrite=True)
    print(f"Open this page in a browser: {page.resolve().as_uri()}")


if __name__ == "__main__":
    main()
