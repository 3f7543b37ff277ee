"""Offline verification of bundles, wheels and installed packages; needs the standard library alone.

Only the signature link needs a library (extra `verify`). Nothing that is checked is executed.
"""
