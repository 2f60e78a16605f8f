// main.c: tutti-topo: which command, with which options. See tutti-topo(1).
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "commands.h"

enum { FAILED = 1, BAD_USAGE = 2 };

typedef struct command {
  const char *name, *arguments, *help;
  int bit;
  int (*run)(const xp_options *o, xp_print *out);
  const char *more; // for its own help
} command;

static const command commands[] = {
    {"show", "[FILE]", "the machine as a tree: CPUs, switches, GPUs, network, links", XP_SHOW, xp_show,
     "--format text (default), xml, json, svg (a picture for a slide), html (one file that needs no other)"},
    {"paths", "[FILE]", "type, bandwidth and links of the path between any two devices", XP_PATHS, xp_paths, NULL},
    {"graphs", "[FILE]", "the channels that the search finds, in the form of NCCL_GRAPH_DUMP_FILE", XP_GRAPHS,
     xp_graphs, NULL},
    {"channels", "[FILE]", "the rings and trees of every rank over all nodes", XP_CHANNELS, xp_channels,
     "--format text (default, NCCL's log), json, plain (one ring or rank per line)"},
    {"tuning", "[FILE]", "the cost model, and the algorithm chosen for each size", XP_TUNING, xp_tuning,
     "--format text (default), plain (one number per line), json"},
    {"explain", "[FILE]", "one operation: the algorithm chosen, the predicted time, and the reasons", XP_EXPLAIN,
     xp_explain,
     "--format text (default), json. --coll also takes allgatherv, reducescatterv, gatherv, scatterv, alltoallv."},
    {"simulate", "[FILE]", "the table that a perf program would print", XP_SIMULATE, xp_simulate, NULL},
    {"lint", "FILE", "errors and suspicious values in a file, by line", XP_LINT, xp_lint_file,
     "A topology or a graph file. Exit status 1: something was found."},
    {"diff", "FILE FILE", "differences in meaning between two machines, or two files of graphs", XP_DIFF, xp_diff_files,
     "Exit status 1: there are differences."},
    {"host", "", "host memory: this machine's cost figures, and the algorithms chosen with them", XP_HOST, xp_host,
     "--ranks processes of this machine; NCCL_ALGO, NCCL_PROTO and NCCL_HOST_FIGURES apply. --coll as explain."},
    {"gather", "", "a capture of this machine, for use as FILE of other commands", XP_GATHER, xp_gather, NULL},
};

static const char *command_at(void *arg, int i)
{
  (void)arg;
  return i < (int)TT_COUNT(commands) ? commands[i].name : NULL;
}

static const command *find_command(const char *name)
{
  for (size_t i = 0; i < TT_COUNT(commands); i++) {
    if (strcmp(commands[i].name, name) == 0) {
      return &commands[i];
    }
  }
  return NULL;
}

static void write_overview(FILE *f)
{
  fprintf(f, "usage: tutti-topo COMMAND [FILE] [OPTION]...\n\n"
             "What the library knows of a machine, and what it makes of it. FILE is a machine in XML (NCCL_TOPO_FILE, "
             "NCCL_TOPO_DUMP_FILE),\n"
             "a capture (tutti-topo gather), a folder with a copy of /sys, or - for standard input; without it: this "
             "computer.\n\n");
  for (size_t i = 0; i < TT_COUNT(commands); i++) {
    fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].help);
  }
  fprintf(f, "\ntutti-topo COMMAND -h, or help COMMAND, lists a command's options; --version prints the version. "
             "Manual: tutti-topo(1).\n");
}

static void write_command(const command *c, FILE *f)
{
  static char text[8192];
  xp_options_help(c->bit, text, sizeof(text));
  fprintf(f, "usage: tutti-topo %s %s%s[OPTION]...\n\n%s%s%s\n\n%s", c->name, c->arguments,
          c->arguments[0] != 0 ? " " : "", c->help, c->more != NULL ? "\n" : "", c->more != NULL ? c->more : "", text);
}

// "tutti-topo explain -o dgx.xml" would write over the machine that is meant: it begins as a description does, and no
// other file is given. What is no regular file (a pipe, a terminal) is not looked into: there is nothing to lose, and
// reading would wait.
static bool loses_machine(const command *c, const xp_options *o)
{
  char text[256] = "";
  struct stat st;
  if (o->output == NULL || o->nfiles > 0 || (c->bit & XP_MACHINE) == 0 || stat(o->output, &st) != 0 ||
      !S_ISREG(st.st_mode)) {
    return false;
  }
  FILE *f = fopen(o->output, "rbe");
  size_t n = f != NULL ? fread(text, 1, sizeof(text) - 1, f) : 0;
  if (f != NULL) {
    fclose(f);
  }
  text[n] = 0;
  bool machine = strstr(text, "<system") != NULL || strncmp(text, "tutti-machine", strlen("tutti-machine")) == 0;
  if (machine) {
    fprintf(stderr, "tutti-topo: %s: -o %.200s would write over a machine's description, and no FILE is given\n",
            c->name, o->output);
  }
  return machine;
}

static int unknown(const char *name)
{
  const char *near = xp_nearest(name, command_at, NULL);
  fprintf(stderr, "tutti-topo: unknown command '%.80s'%s%s; tutti-topo -h lists them\n", name,
          near != NULL ? "; the nearest is " : "", near != NULL ? near : "");
  return BAD_USAGE;
}

// Runs a command, or writes its help; 1 when the output could not be written.
static int run(const command *c, const xp_options *o)
{
  xp_print out;
  if (!xp_print_open(o, &out)) {
    return FAILED;
  }
  int code = 0;
  if (o->help && c != NULL) {
    write_command(c, out.f);
  } else if (c == NULL) {
    write_overview(out.f);
  } else {
    code = c->run(o, &out);
  }
  bool found = c != NULL && (c->bit & (XP_LINT | XP_DIFF)) != 0 && code == FAILED; // what they found is in the output
  return xp_print_close(&out, code == 0 || found) || code != 0 ? code : FAILED;
}

static int write_version(void)
{
  static const xp_options none = {0};
  xp_print out;
  if (!xp_print_open(&none, &out)) {
    return FAILED;
  }
  fprintf(out.f, "tutti-topo %s, with the rules and the cost model of NCCL 2.30.7\n", TUTTI_VERSION);
  return xp_print_close(&out, true) ? 0 : FAILED;
}

int main(int argc, char **argv)
{
  static const xp_options none = {0};
  xp_options o;
  char why[256];
  signal(SIGPIPE, SIG_IGN); // the reader may stop: an error like others
  if (argc < 2) {
    write_overview(stderr);
    return BAD_USAGE;
  }
  bool help = strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0;
  if (help && argc == 2) {
    return run(NULL, &none);
  }
  bool version = strcmp(argv[1], "--version") == 0;
  if ((version && argc > 2) || (help && argc > 3)) {
    fprintf(stderr, "tutti-topo: %s: unexpected argument '%.80s': %s is expected behind it\n", argv[1],
            argv[version ? 2 : 3], version ? "nothing" : "one command");
    return BAD_USAGE;
  }
  if (version) {
    return write_version();
  }
  if (help) {
    argv++;
    argc = 2;
  }
  const command *c = find_command(argv[1]);
  if (c == NULL) {
    return unknown(argv[1]);
  }
  if (!xp_options_parse(c->bit, argc - 1, argv + 1, &o, why)) {
    fprintf(stderr, "tutti-topo: %s: %s\n", c->name, why);
    return BAD_USAGE;
  }
  o.help = o.help || help;
  return !o.help && loses_machine(c, &o) ? BAD_USAGE : run(c, &o);
}
