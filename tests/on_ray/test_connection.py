import os
import sys
from types import SimpleNamespace

import pytest

from manylabel.errors import ClusterError, MissingExtraError
from manylabel.on_ray import LOCAL_ATTEMPTS, connected_to_ray


@pytest.fixture
def fake_ray(monkeypatch):
    """A Ray that notes what it is asked, and fails as often as it is told."""
    fake = SimpleNamespace(calls=[], failures=0, is_initialized=lambda: False)

    def init(**settings):
        fake.calls.append(settings | {"path": os.environ.get("PYTHONPATH", "")})
        if len(fake.calls) <= fake.failures:
            raise Exception("timed out")

    fake.init, fake.shutdown = init, lambda: fake.calls.append("shutdown")
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("PYTHONPATH", "before")
    return fake


def test_ray_is_started_here_and_stopped_even_after_a_mistake(fake_ray):
    with pytest.raises(ZeroDivisionError), connected_to_ray(num_cpus=3) as ray:
        1 / len(ray.calls[1:])
    started, stopped = fake_ray.calls
    assert (started["address"], started["num_cpus"], started["include_dashboard"]) == (None, 3, False)
    assert stopped == "shutdown"


def test_processes_of_ray_can_import_what_this_one_can(fake_ray):
    with connected_to_ray():
        assert os.environ["PYTHONPATH"] == "before"
    assert set(filter(None, sys.path)) <= set(fake_ray.calls[0]["path"].split(os.pathsep))


def test_ray_that_runs_is_used_and_left(fake_ray):
    fake_ray.is_initialized = lambda: True
    with connected_to_ray("auto"):
        pass
    assert fake_ray.calls == []


def test_a_busy_machine_gets_another_attempt(fake_ray):
    fake_ray.failures = LOCAL_ATTEMPTS - 1
    with connected_to_ray():
        pass
    assert len(fake_ray.calls) == LOCAL_ATTEMPTS + 1


def test_ray_that_cannot_be_had_is_an_error_with_advice(fake_ray):
    fake_ray.failures = LOCAL_ATTEMPTS
    with pytest.raises(ClusterError, match=r"started on this machine \(timed out\); stay local"):
        connected_to_ray(advice="stay local").__enter__()
    fake_ray.calls.clear()
    with pytest.raises(ClusterError, match="reached at cluster:6379"):
        connected_to_ray("cluster:6379").__enter__()
    assert len(fake_ray.calls) == 2  # once, and the end


def test_a_missing_extra_names_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r'pip install "manylabel\[ray\]"'):
        connected_to_ray().__enter__()
