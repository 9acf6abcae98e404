"""Writes the parts of the documentation that come from the code and from measurements.

`python -m docs.generator` writes them, with `--check` it only says which are out of date. Imports
neither torch nor llama_cpp.
"""
