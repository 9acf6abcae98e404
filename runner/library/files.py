"""The store's way of writing small files, for those that the daemon keeps beside its models."""

from registry.atomic import write_private

__all__ = ["write_private"]
