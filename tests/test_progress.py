import time

from rich.table import Table

from manylabel import progress as module
from manylabel.progress import ProgressBar, SafeConsole, working


def test_a_log_gets_a_line_every_ten_seconds(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with ProgressBar("reading images") as bar:
        for done in range(41):
            bar.update(done, 5_000)
            now[0] += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == [f"reading images: {done}/5,000" for done in (10, 20, 30, 40)]


def test_a_line_says_how_long_it_will_take(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    bar = ProgressBar("training")
    for done in (40, 50, 60):  # a resumed run begins at 40
        bar.update(done, 100, "loss 0.1", doing="epoch 2/3")
        now[0] += 10.0
    bar.stop()
    assert capsys.readouterr().err.splitlines() == [
        "epoch 2/3: 50/100  loss 0.1  about 50 s left",
        "epoch 2/3: 60/100  loss 0.1  about 40 s left",
    ]


def test_another_pass_starts_the_clock_again(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with ProgressBar("computing features") as bar:
        for done, total in ((9, 9), (0, 60), (20, 60)):
            now[0] += 10.0
            bar.update(done, total)
    assert [line.split("  ")[1] for line in capsys.readouterr().err.splitlines()] == ["10 s", "0 s", "about 20 s left"]


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ProgressBar("reading images of [run]") as bar:
        bar.update(1, 2)
    assert "reading images of [run]" in capsys.readouterr().err


def lines_of(seconds, capsys):
    """Return the descriptions of work that are printed while nothing is updated."""
    capsys.readouterr()
    time.sleep(seconds)
    return [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]


def test_a_log_shows_that_a_single_long_step_is_in_progress(monkeypatch, capsys):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.05)
    with working("exporting the model"):
        assert len(lines := lines_of(0.3, capsys)) >= 2
        assert set(lines) == {"exporting the model"}
    assert lines_of(0.1, capsys) == []


def test_the_innermost_of_nested_bars_prints_and_the_outermost_ends_all(monkeypatch, capsys):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.05)
    with ProgressBar("working"):
        with ProgressBar("training") as inner:
            inner.update(3, 9)
            assert set(lines_of(0.2, capsys)) == {"training"}
        assert set(lines_of(0.2, capsys)) == {"working"}
        ProgressBar("saving").update(1, 2)
    assert lines_of(0.1, capsys) == []


def test_a_line_says_how_long_a_step_without_progress_has_taken(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with ProgressBar("features") as bar:
        for _ in range(3):
            bar.update(0, 600)
            now[0] += 40.0
    assert capsys.readouterr().err.splitlines() == ["features: 0/600  40 s", "features: 0/600  1 min 20 s"]


def test_text_is_printed_as_it_is_and_cannot_steer_the_terminal(capsys):
    table = Table("label")
    table.add_row("\x1b]0;title\x07 :dog: \ud800")
    for words in ("root:x:0", "dog\u202ecod \x9b2J\x00", table):
        SafeConsole().print(words)
    printed = capsys.readouterr().out
    assert "root:x:0" in printed
    assert ":dog:" in printed
    assert "dog\ufffdcod" in printed
    assert "\ufffd]0;title" in printed
    assert not set("\x1b\x07\x9b\x00\u202e\ud800") & set(printed)
