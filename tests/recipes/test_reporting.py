import io

from rich.console import Console

from manylabel.recipes import Reporter


def tell(reporter, *done):
    for count in done:
        reporter.features(count, 1000)


def test_a_log_gets_a_line_on_the_features_now_and_then(monkeypatch):
    text, now = io.StringIO(), iter([0.0, 2.0, 12.0, 13.0])
    monkeypatch.setattr("manylabel.progress.time.monotonic", lambda: next(now))
    tell(Reporter(Console(file=text, width=200)), 100, 220, 300)
    assert text.getvalue() == "features: 220/1,000  about 1 min 18 s left\n"


def test_a_log_gets_no_line_where_all_features_are_there():
    text = io.StringIO()
    tell(Reporter(Console(file=text)), 1000)
    assert text.getvalue() == ""


def test_a_terminal_gets_a_bar_that_ends():
    text = io.StringIO()
    tell(Reporter(Console(file=text, width=200, force_terminal=True)), 100, 1000)
    assert "1000/1000" in text.getvalue()


def test_names_in_brackets_are_shown():
    text = io.StringIO()
    Reporter(Console(file=text, width=200)).say("the model is in runs/[a]/[/b]")
    assert text.getvalue() == "the model is in runs/[a]/[/b]\n"
