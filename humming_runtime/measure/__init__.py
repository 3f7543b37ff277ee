"""Timing launches on a GPU: `humming tune`, and the benches of the repository. Needs torch."""
