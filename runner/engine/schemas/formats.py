"""The values of `format`: which are enforced, and how.

JSON Schema leaves it open whether formats are checked. Those that llguidance has are, and those
with a pattern here. What a regular expression cannot say, and names that JSON Schema does not know,
are taken as remarks: docs/api.md lists them.
"""

from __future__ import annotations

FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)  # llguidance's

FORMAT_PATTERNS = {
    "json-pointer": r"^(/([^~/]|~[01])*)*$",
    "relative-json-pointer": r"^(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)$",
    "uri-reference": (
        r"^([A-Za-z][A-Za-z0-9+.\-]*:)?([A-Za-z0-9\-._~!$&'()*+,;=:@/?\[\]]|%[0-9A-Fa-f]{2})*"
        r"(#([A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*)?$"
    ),
}
