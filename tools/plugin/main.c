// main.c: tutti-plugin. See tutti-plugin(1).
#include <stdio.h>
#include <string.h>

#include "check.h"

static const char usage[] =
    "usage: tutti-plugin check LIBRARY\n\n"
    "Loads a plugin for NCCL, says which kinds and versions of the interface it has, and runs a job of checks through those that are\n"
    "known: tuners (versions 2 to 6) and environments (1, 2). LIBRARY is a path, or a name that the dynamic linker looks up.\n\n"
    "Exit status: 0 no rule is broken; 1 one is, or there is no plugin in it; 2 wrong usage, or it cannot be loaded.\n"
    "NCCL_DEBUG=INFO shows what the plugin logs. tutti-plugin(1) lists the rules.\n";

int main(int argc, char **argv)
{
  if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
    fputs(usage, stdout);
    return 0;
  }
  if (argc != 3 || strcmp(argv[1], "check") != 0) {
    fputs(usage, stderr);
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  return pc_check(argv[2]);
}
