import pytest

from manylabel.cost import median_seconds
from manylabel.errors import ConfigError


def test_runs_the_calls_by_turns() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    assert set(median_seconds(calls, rounds=2, warmup=1)) == {"a", "b"}
    assert order == ["a", "b"] * 3


def test_rejects_nothing_to_time() -> None:
    with pytest.raises(ConfigError, match="at least one call"):
        median_seconds({})
