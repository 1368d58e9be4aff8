import pytest

from manylabel.cost import median_seconds
from manylabel.errors import ConfigError


def test_runs_the_calls_by_turns() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    assert set(median_seconds(calls, rounds=2, warmup=1)) == {"a", "b"}
    assert order == ["a", "b"] * 3


def test_gives_the_median_of_what_the_clock_says() -> None:
    ticks = iter([0, 200, 201, 300, 305, 400, 402])
    seconds = median_seconds({"a": lambda: None}, rounds=3, warmup=1, clock=lambda: float(next(ticks)))
    assert seconds == {"a": 2.0}


def test_rejects_nothing_to_time() -> None:
    with pytest.raises(ConfigError, match="at least one call"):
        median_seconds({})
