"""The process around one engine."""
