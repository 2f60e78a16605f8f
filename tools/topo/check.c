// check.c: the commands that look at files as such: lint and diff.
#include <stdio.h>

#include "commands.h"
#include "draw.h"

enum { BAD_USAGE = 2 };

static int complain(const char *command, const char *what)
{
  fprintf(stderr, "tutti-topo: %s: %s; tutti-topo %s -h says more\n", command, what, command);
  return BAD_USAGE;
}

int xp_lint_file(const xp_options *o, xp_print *out)
{
  return o->nfiles == 1 ? xp_lint(o->file[0], out->f) : complain("lint", "one FILE is expected");
}

int xp_diff_files(const xp_options *o, xp_print *out)
{
  return o->nfiles == 2 ? xp_diff(o->file[0], o->file[1], out->f) : complain("diff", "two FILEs are expected");
}
