"""Random generators by purpose: independent of each other and of ``torch.manual_seed``.

Torch's generator is determined by the low 32 bits of its seed, so a ``torch.Generator`` seeded with 0 repeats the
numbers of a user's ``torch.manual_seed(0)``: weights drawn from one then equal queries drawn from the other. Private
draws therefore come from numpy's generators, a different algorithm that cannot coincide with torch's at any seed.
"""

import hashlib

import numpy as np


def seed_sequence(purpose: str, *numbers: int) -> np.random.SeedSequence:
    """Return the seed sequence of a purpose.

    Args:
        purpose: The kind of draw, such as ``"random queries"``; different purposes get unrelated seeds.
        numbers: The seed, then anything that distinguishes draws, such as epoch and batch; a fixed count per purpose.

    Examples:
        >>> first, second = (seed_sequence(purpose, 0).generate_state(1) for purpose in ("views", "steps"))
        >>> first == second
        array([False])
    """
    name = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest())
    return np.random.SeedSequence([name, *(number % 2**64 for number in numbers)])


def private_generator(purpose: str, *numbers: int) -> np.random.Generator:
    """Return a generator with an independent stream; arguments as for `seed_sequence`.

    Examples:
        >>> private_generator("random queries", 0).standard_normal(3).round(2)
        array([-1.29,  0.08, -0.1 ])
    """
    return np.random.default_rng(seed_sequence(purpose, *numbers))
