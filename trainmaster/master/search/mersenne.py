"""The random stream of a search: numpy's legacy ``RandomState``, without numpy.

One seed must give the same hyperparameters here, in numpy and in Determined, so the generator (MT19937), its
seeding (Knuth's 1812433253 initialiser) and the way integers are drawn (masked rejection) are all fixed.
CPython's own generator is the same MT19937; only its seeding differs, and that can be set from outside.
"""

from __future__ import annotations

import base64
import binascii
import random
import struct
import uuid

from trainmaster.master.search.actions import SearchError

_WORDS = 624
_MASK32 = 0xFFFFFFFF
_LAYOUT = struct.Struct(f"<{_WORDS + 1}I")  # the words of the state, then the position in them


class RandomState:
    """A random stream that equals ``numpy.random.RandomState(seed)`` draw for draw. `seed` is taken modulo 2**32."""

    def __init__(self, seed: int) -> None:
        word = seed & _MASK32
        words = []
        for position in range(_WORDS):
            words.append(word)
            word = (1812433253 * (word ^ (word >> 30)) + position + 1) & _MASK32
        self._twister = random.Random()  # noqa: S311 - reproducible by design, never a secret
        self._twister.setstate((3, (*words, _WORDS), None))

    def bits32(self) -> int:
        """One draw: an integer in [0, 2**32)."""
        return self._twister.getrandbits(32)

    def below(self, n: int) -> int:
        """Return an integer in [0, n), as ``RandomState.randint(n)``; n is 1 .. 2**64. A 1 draws nothing."""
        if not 1 <= n <= 1 << 64:
            raise ValueError(f"a random integer below {n} was asked for; 1 .. 2**64 is possible")
        limit = n - 1
        mask = (1 << limit.bit_length()) - 1
        if limit == 0:
            return 0
        while True:
            draw = self.bits32()
            if mask > _MASK32:
                draw = (draw << 32) | self.bits32()
            if (draw := draw & mask) <= limit:
                return draw

    def unit(self) -> float:
        """Return a double in [0, 1) with 53 random bits, as ``RandomState.random_sample()``. Two draws."""
        return self._twister.random()

    def uniform(self, low: float, high: float) -> float:
        """Return a double in [low, high), as ``RandomState.uniform(low, high)``."""
        return low + (high - low) * self.unit()

    def uuid4(self) -> uuid.UUID:
        """Return a version 4 UUID from four draws, each laid down in little-endian order."""
        return uuid.UUID(bytes=struct.pack("<4I", *(self.bits32() for _ in range(4))), version=4)

    def dump(self) -> str:
        """Return the state as base64 text (about 3.3 kB) for `load`."""
        _, words, _ = self._twister.getstate()
        return base64.b64encode(_LAYOUT.pack(*words)).decode("ascii")

    @classmethod
    def load(cls, text: str) -> RandomState:
        """Return the stream that `dump` described; it continues with the very next draw."""
        try:
            words = _LAYOUT.unpack(base64.b64decode(text, validate=True))
            stream = cls(0)
            stream._twister.setstate((3, words, None))
        except (binascii.Error, struct.error, ValueError) as error:
            raise SearchError(f"the stored random state cannot be read: {error}") from None
        return stream
