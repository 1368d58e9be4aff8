"""Ray on this machine, started once for all tests of this folder, with two CPUs and a cache of its own."""

import pytest

from manylabel.on_ray import connected_to_ray


@pytest.fixture(scope="session")
def local_ray(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYLABEL_CACHE", str(tmp_path_factory.mktemp("cache")))  # Ray's processes inherit it
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do some day, without a warning
        patch.setenv("RAY_worker_niceness", "0")  # they give way to all others, and would never start on a busy machine
        with connected_to_ray(num_cpus=2) as ray:
            yield ray
