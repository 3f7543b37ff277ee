"""Humming AOT: prebuilt quantized-GEMM kernels and the thin loader that picks one.

Importing this package touches no device, no torch, no disk beyond its own files.
"""
