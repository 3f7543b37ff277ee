"""The generator: YAML specs to cubins to one data wheel per architecture (`humming-build`)."""

__version__ = "0.1.0"
