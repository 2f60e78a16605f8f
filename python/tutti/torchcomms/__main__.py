"""Compile the back end of torchcomms now, and say where it is."""

import os

import tutti.torchcomms

print(os.environ[tutti.torchcomms._PATH_VARIABLE])
