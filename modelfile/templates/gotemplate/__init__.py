"""Go's text/template: lexer, parser, compiler to closures, built-in functions and fmt.

template.py is the way in. Strings are str; bytes of them that are no UTF-8 stand in it as Python's
surrogate escapes, since Go counts, slices and prints bytes.
"""
