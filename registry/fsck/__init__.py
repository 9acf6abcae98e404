"""The check of a store: what is damaged, missing or out of place, and how it is repaired."""
