// extension.cpp: all of the extension as one unit. PyTorch's headers take longest to compile, so they are read once.
#include "collectives.cpp"
#include "comm.cpp"
#include "group.cpp"
#include "library.cpp"
#include "messages.cpp"
#include "module.cpp"
#include "reduction.cpp"
#include "work.cpp"
