"""Modelfiles: language, templates, and the building of bundles."""
