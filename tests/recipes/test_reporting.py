import io

from rich.console import Console

from manylabel.recipes import Reporter
from manylabel.training.feature_progress import FeatureProgress


def tell(reporter, *done):
    for count in done:
        reporter.features(FeatureProgress(count, 1000, pictures_per_second=50.0, seconds_left=600.0, num_bytes=10**9))


def test_a_log_gets_a_line_on_the_features_now_and_then():
    text = io.StringIO()
    tell(Reporter(Console(file=text, width=200)), 100, 200, 300)
    assert text.getvalue() == "features 100/1,000  50 pictures/s, about 10 min 0 s left, 1.0 GB on disk in all\n"


def test_a_log_gets_no_line_where_all_features_are_there():
    text = io.StringIO()
    tell(Reporter(Console(file=text)), 1000)
    assert text.getvalue() == ""


def test_a_terminal_gets_a_bar_that_ends():
    text = io.StringIO()
    tell(Reporter(Console(file=text, width=200, force_terminal=True)), 100, 1000)
    assert "1000/1000" in text.getvalue()
    assert "50 pictures/s" in text.getvalue()


def test_names_in_brackets_are_shown():
    text = io.StringIO()
    Reporter(Console(file=text, width=200)).say("the model is in runs/[a]/[/b]")
    assert text.getvalue() == "the model is in runs/[a]/[/b]\n"
