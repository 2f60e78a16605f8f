"""Compile the extension for the installed PyTorch now, and say where it is."""

from tutti.torch import _build

print(_build.build())
