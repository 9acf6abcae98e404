"""The values of `format`: which are enforced, and how.

JSON Schema leaves it open whether formats are checked. Those that llguidance has are, and those
with a pattern here. What a regular expression cannot say, and names that JSON Schema does not know,
are taken as remarks: docs/api.md lists them.
"""

from __future__ import annotations

FORMATS = frozenset({"duration", "email", "hostname", "ipv6", "uri"})  # llguidance's

_DATE = (
    r"[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    r"|02-(0[1-9]|[12][0-9]))"
)
_MINUTE = "([01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_MINUTE}:([0-5][0-9]|60)(\.[0-9]+)?([zZ]|[+-]{_MINUTE})"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"

FORMAT_PATTERNS = {
    # As llguidance has them, for where `not` or `oneOf` ask for what is none
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[tT]{_TIME}$",
    "ipv4": rf"^({_BYTE}\.){{3}}{_BYTE}$",
    "uuid": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "json-pointer": r"^(/([^~/]|~[01])*)*$",
    "relative-json-pointer": r"^(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)$",
    "uri-reference": (
        r"^([A-Za-z][A-Za-z0-9+.\-]*:)?([A-Za-z0-9\-._~!$&'()*+,;=:@/?\[\]]|%[0-9A-Fa-f]{2})*"
        r"(#([A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*)?$"
    ),
}
