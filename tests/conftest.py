"""What all tests share."""

from hypothesis import settings

# Machines differ and CI is busy: no test fails because it was slow, and every run tries the same examples.
settings.register_profile("manylabel", deadline=None, derandomize=True)
settings.load_profile("manylabel")
