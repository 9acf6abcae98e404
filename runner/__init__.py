"""The runner: daemon, workers, engine and backends of hearth."""

__version__ = "0.1.0"
