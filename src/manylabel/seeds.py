"""Seeds by purpose: no two kinds of draws share a stream, and none of ours is that of ``torch.manual_seed``.

Torch's generator is fixed by the low 32 bits of its seed, so a ``torch.Generator`` of ours seeded with 0 repeats the
numbers of everybody's ``torch.manual_seed(0)``: weights drawn from one then equal queries drawn from the other. Private
draws therefore come from numpy's generators, which are of another kind and cannot coincide with torch's at any seed.
"""

import hashlib

import numpy as np

__all__ = ["private_generator", "seed_sequence"]


def seed_sequence(purpose: str, *numbers: int) -> np.random.SeedSequence:
    """Return the source of seeds for a purpose.

    Args:
        purpose: The kind of draw, such as ``"random queries"``; another purpose, unrelated seeds.
        numbers: The seed, then whatever else tells draws apart, such as epoch and batch; always as many per purpose.

    Examples:
        >>> first, second = (seed_sequence(purpose, 0).generate_state(1) for purpose in ("views", "steps"))
        >>> first == second
        array([False])
    """
    name = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest())
    return np.random.SeedSequence([name, *(number % 2**64 for number in numbers)])


def private_generator(purpose: str, *numbers: int) -> np.random.Generator:
    """Return a generator that shares its stream with nothing else; arguments as for `seed_sequence`.

    Examples:
        >>> private_generator("random queries", 0).standard_normal(3).round(2)
        array([-1.29,  0.08, -0.1 ])
    """
    return np.random.default_rng(seed_sequence(purpose, *numbers))
