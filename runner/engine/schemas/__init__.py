"""JSON schemas in the words that llguidance has.

`rewrite` is what others call. Knows JSON Schema and regular expressions, no tokens.
"""
