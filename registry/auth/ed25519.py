"""Ed25519 signatures (RFC 8032), for one signature now and then.

Not hardened against observers of this process's timing: the key and the message are the user's
own. Knows no key files.
"""

from __future__ import annotations

import hashlib

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P

Point = tuple[int, int, int, int]


def _base() -> Point:
    y = 4 * pow(5, -1, _P) % _P
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    x = x if x % 2 == 0 else _P - x
    return (x, y, 1, x * y % _P)


def _add(a: Point, b: Point) -> Point:
    left = (a[1] - a[0]) * (b[1] - b[0]) % _P
    right = (a[1] + a[0]) * (b[1] + b[0]) % _P
    c, d = 2 * a[3] * b[3] * _D % _P, 2 * a[2] * b[2] % _P
    e, f, g, h = right - left, d - c, d + c, right + left
    return (e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _multiply(scalar: int, point: Point) -> Point:
    result: Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result


def _compress(point: Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _expand(seed: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    return scalar, digest[32:]


def public_key(seed: bytes) -> bytes:
    """The 32 bytes of the public key of a seed of 32 bytes."""
    return _compress(_multiply(_expand(seed)[0], _base()))


def sign(seed: bytes, message: bytes) -> bytes:
    """The signature of message, 64 bytes (RFC 8032, section 5.1.6)."""
    scalar, prefix = _expand(seed)
    public = _compress(_multiply(scalar, _base()))
    nonce = int.from_bytes(hashlib.sha512(prefix + message).digest(), "little") % _ORDER
    commitment = _compress(_multiply(nonce, _base()))
    challenge = hashlib.sha512(commitment + public + message).digest()
    answer = (nonce + int.from_bytes(challenge, "little") * scalar) % _ORDER
    return commitment + answer.to_bytes(32, "little")
