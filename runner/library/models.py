"""The types of installed models, for those who get them from the library."""

from __future__ import annotations

from registry.bundle import Bundle, BundleFile, BundleMessage
from registry.formats.gguf import GgufHeader, LazyArray
from registry.store import StoredModel

__all__ = ["Bundle", "BundleFile", "BundleMessage", "GgufHeader", "LazyArray", "StoredModel"]
