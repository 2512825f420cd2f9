"""Sobol sequences with Owen's scrambling: points that fill a cube more evenly than random ones.

Direction numbers are those of Joe and Kuo 2008, "Constructing Sobol sequences with better two-dimensional
projections"; scrambling is Owen 1995, "Randomly permuted (t, m, s)-nets and (t, s)-sequences": each digit of a
coordinate is permuted at random, by a permutation that the digits before it choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

BITS = 32
MOST_DIMENSIONS = 64

# For each dimension after the first: a primitive polynomial over GF(2), its bits the coefficients, and the initial
# numbers.
# fmt: off
DIRECTIONS = (
    (3, 1), (7, 1, 3), (11, 1, 3, 1), (13, 1, 1, 1), (19, 1, 1, 3, 3), (25, 1, 3, 5, 13), (37, 1, 1, 5, 5, 17),
    (41, 1, 1, 5, 5, 5), (47, 1, 1, 7, 11, 19), (55, 1, 1, 5, 1, 1), (59, 1, 1, 1, 3, 11), (61, 1, 3, 5, 5, 31),
    (67, 1, 3, 3, 9, 7, 49), (91, 1, 1, 1, 15, 21, 21), (97, 1, 3, 1, 13, 27, 49), (103, 1, 1, 1, 15, 7, 5),
    (109, 1, 3, 1, 15, 13, 25), (115, 1, 1, 5, 5, 19, 61), (131, 1, 3, 7, 11, 23, 15, 103),
    (137, 1, 3, 7, 13, 13, 15, 69), (143, 1, 1, 3, 13, 7, 35, 63), (145, 1, 3, 5, 9, 1, 25, 53),
    (157, 1, 3, 1, 13, 9, 35, 107), (167, 1, 3, 1, 5, 27, 61, 31), (171, 1, 1, 5, 11, 19, 41, 61),
    (185, 1, 3, 5, 3, 3, 13, 69), (191, 1, 1, 7, 13, 1, 19, 1), (193, 1, 3, 7, 5, 13, 19, 59),
    (203, 1, 1, 3, 9, 25, 29, 41), (211, 1, 3, 5, 13, 23, 1, 55), (213, 1, 3, 7, 3, 13, 59, 17),
    (229, 1, 3, 1, 3, 5, 53, 69), (239, 1, 1, 5, 5, 23, 33, 13), (241, 1, 1, 7, 7, 1, 61, 123),
    (247, 1, 1, 7, 9, 13, 61, 49), (253, 1, 3, 3, 5, 3, 55, 33), (285, 1, 3, 1, 15, 31, 13, 49, 245),
    (299, 1, 3, 5, 15, 31, 59, 63, 97), (301, 1, 3, 1, 11, 11, 11, 77, 249), (333, 1, 3, 1, 11, 27, 43, 71, 9),
    (351, 1, 1, 7, 15, 21, 11, 81, 45), (355, 1, 3, 7, 3, 25, 31, 65, 79), (357, 1, 3, 1, 1, 19, 11, 3, 205),
    (361, 1, 1, 5, 9, 19, 21, 29, 157), (369, 1, 3, 7, 11, 1, 33, 89, 185), (391, 1, 3, 3, 3, 15, 9, 79, 71),
    (397, 1, 3, 7, 11, 15, 39, 119, 27), (425, 1, 1, 3, 1, 11, 31, 97, 225), (451, 1, 1, 1, 3, 23, 43, 57, 177),
    (463, 1, 3, 7, 7, 17, 17, 37, 71), (487, 1, 3, 1, 5, 27, 63, 123, 213), (501, 1, 1, 3, 5, 11, 43, 53, 133),
    (529, 1, 3, 5, 5, 29, 17, 47, 173, 479), (539, 1, 3, 3, 11, 3, 1, 109, 9, 69),
    (545, 1, 1, 1, 5, 17, 39, 23, 5, 343), (557, 1, 3, 1, 5, 25, 15, 31, 103, 499),
    (563, 1, 1, 1, 11, 11, 17, 63, 105, 183), (601, 1, 1, 5, 11, 9, 29, 97, 231, 363),
    (607, 1, 1, 5, 15, 19, 45, 41, 7, 383), (617, 1, 3, 7, 7, 31, 19, 83, 137, 221),
    (623, 1, 1, 1, 3, 23, 15, 111, 223, 83), (631, 1, 1, 5, 13, 31, 15, 55, 25, 161),
    (637, 1, 1, 3, 13, 25, 47, 39, 87, 257),
)
# fmt: on


def sobol_point(number: int, seeds: Sequence[int]) -> list[float]:
    """Return a point of a scrambled sequence.

    Args:
        number: which one, 0, 1, ...; less than 2**32.
        seeds: one a dimension, 0 .. 2**32 - 1, at most `MOST_DIMENSIONS`; the same seeds are the same sequence.

    Returns:
        A coordinate a dimension, 0 <= x < 1.
    """
    return [_scrambled(_digits(number, dimension), seed) / 2**BITS for dimension, seed in enumerate(seeds)]


def _digits(number: int, dimension: int) -> int:
    digits, place = 0, 0
    while number:
        if number & 1:
            digits ^= _directions(dimension)[place]
        number >>= 1
        place += 1
    return digits


@cache
def _directions(dimension: int) -> list[int]:
    """Return the direction numbers of a dimension, as fractions of 2**BITS."""
    if dimension == 0:
        return [1 << (BITS - 1 - place) for place in range(BITS)]
    polynomial, *initial = DIRECTIONS[dimension - 1]
    degree = len(initial)
    numbers = [value << (BITS - 1 - place) for place, value in enumerate(initial)]
    for place in range(degree, BITS):
        value = numbers[place - degree] ^ (numbers[place - degree] >> degree)
        for back in range(1, degree):
            if polynomial >> (degree - back) & 1:
                value ^= numbers[place - back]
        numbers.append(value)
    return numbers


def _scrambled(digits: int, seed: int) -> int:
    result = 0
    for place in range(BITS - 1, -1, -1):
        leading = digits >> (place + 1)
        flip = _mixed(seed ^ _mixed(leading * 0x9E3779B1 + place)) & 1
        result |= ((digits >> place & 1) ^ flip) << place
    return result


def _mixed(value: int) -> int:
    """Return a hash of 32 bits (the finaliser of MurmurHash3)."""
    value &= 0xFFFFFFFF
    value = (value ^ value >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return value ^ value >> 16
