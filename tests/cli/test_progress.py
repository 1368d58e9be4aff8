from manylabel.cli import progress as module
from manylabel.cli.progress import progress_bar


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with progress_bar("reading pictures") as progress:
        for done in range(1, 101):
            now[0] += 1.0
            progress(done, 5_000)
    assert capsys.readouterr().err.splitlines() == [f"reading pictures: {done}/5,000" for done in (30, 60, 90)]


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("reading pictures of [run]") as progress:
        progress(1, 2)
    assert "reading pictures of [run]" in capsys.readouterr().err
