// main.c: tutti-plugin. See tutti-plugin(1).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { PATIENCE = 10, MOST_PATIENCE = 3600 };

static const char usage[] =
    "usage: tutti-plugin check [-t SECONDS] LIBRARY\n\n"
    "Loads a plugin for NCCL, prints which kinds and versions of the interface it has, and runs checks on each of "
    "them.\n"
    "Checked: networks and collective networks (versions 6 to 12), profilers (1 to 6), tuners (2 to 6), environments\n"
    "(1, 2). LIBRARY is a path, or a name that the dynamic linker looks up.\n\n"
    "-t SECONDS: time limit without progress (default 10). Use more for a slow network.\n"
    "Exit status: 0 no rule is broken; 1 a rule is broken, or LIBRARY has no plugin; 2 wrong usage, or LIBRARY cannot\n"
    "be loaded. NCCL_DEBUG=INFO shows the plugin's log. tutti-plugin(1) lists the rules.\n";

int main(int argc, char **argv)
{
  int patience = PATIENCE, at = 2;
  if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
    fputs(usage, stdout);
    return 0;
  }
  if (argc == 5 && strcmp(argv[2], "-t") == 0) {
    char *end;
    long seconds = strtol(argv[3], &end, 10);
    patience = *end == '\0' && seconds >= 1 && seconds <= MOST_PATIENCE ? (int)seconds : 0;
    at = 4;
  }
  if (argc != at + 1 || strcmp(argv[1], "check") != 0 || patience == 0) {
    fputs(usage, stderr);
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  return pc_check(argv[at], patience);
}
