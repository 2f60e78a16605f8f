// tutti-trace: see the man page docs/man/tutti-trace.1.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace_tool.h"

static const char help[] =
    "usage: tutti-trace COMMAND FILE... [-o OUTPUT]\n"
    "\n"
    "FILE: time lines of ranks, as libnccl-profiler-trace.so writes them (NCCL_PROFILER_PLUGIN=trace); or dumps of "
    "the\n"
    "flight recorder as JSON (NCCL_FLIGHT_RECORDER_FORMAT=JSON, or what `ncclras RECORDER` prints).\n"
    "\n"
    "commands\n"
    "  report    one HTML page that needs no other file: time line, which rank waits for which, bandwidth over time\n"
    "  merge     one time line of all ranks, on one clock, for ui.perfetto.dev or chrome://tracing\n"
    "  summary   a table of operations by function and size, with the slowest rank and the waits between ranks\n"
    "  workload  the collectives as a list, from which `tutti-topo simulate --workload` predicts them elsewhere\n"
    "\n"
    "options\n"
    "  -o FILE   write to FILE (default: standard output)\n"
    "  -h        print this text\n"
    "\n"
    "exit status: 0 success, 1 the output cannot be written, 2 wrong usage or a file is neither\n";

typedef struct command {
  const char *name;
  bool (*run)(xt_jobs *jobs, FILE *out);
} command;

static const command commands[] = {
    {"report", xt_report}, {"merge", xt_merge}, {"summary", xt_summary}, {"workload", xt_workload}};

static int usage(const char *what, const char *which)
{
  fprintf(stderr, "tutti-trace: %s%s; for help: tutti-trace -h\n", what, which);
  return 2;
}

// Is the output one of the inputs, by whatever name? Writing would destroy it.
static bool is_input(const char *output, char *const *files, int n)
{
  struct stat out, in;
  bool there = output != NULL && stat(output, &out) == 0;
  for (int i = 0; there && i < n; i++) {
    if (stat(files[i], &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino) {
      return true;
    }
  }
  return false;
}

static int write_output(const command *c, xt_jobs *jobs, const char *output)
{
  FILE *out = output != NULL ? fopen(output, "we") : stdout;
  bool good = out != NULL && c->run(jobs, out);
  good = good && fflush(out) == 0 && ferror(out) == 0;
  int error = errno;
  if (out != NULL && out != stdout) {
    good = fclose(out) == 0 && good;
  }
  if (!good) {
    fprintf(stderr, "tutti-trace: %s cannot be written: %s\n", output != NULL ? output : "the output", strerror(error));
  }
  return good ? 0 : 1;
}

int main(int argc, char **argv)
{
  const char *output = NULL;
  const command *c = NULL;
  int n = 0;
  char **files = calloc((size_t)argc + 1, sizeof *files);
  if (files == NULL) {
    return usage("no memory", "");
  }
  for (int i = 1; i < argc; i++) {
    bool option = argv[i][0] == '-' && argv[i][1] != '\0';
    if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
      free(files);
      return fputs(help, stdout) < 0 || fflush(stdout) != 0;
    }
    if (strcmp(argv[i], "-o") == 0 && i + 1 < argc) {
      output = argv[++i];
    } else if (option) {
      free(files);
      return usage(strcmp(argv[i], "-o") == 0 ? "a file is missing after " : "there is no option ", argv[i]);
    } else if (c == NULL && n == 0) {
      for (size_t k = 0; k < sizeof commands / sizeof *commands; k++) {
        c = strcmp(argv[i], commands[k].name) == 0 ? &commands[k] : c;
      }
      if (c == NULL) {
        free(files);
        return usage("there is no command ", argv[i]);
      }
    } else {
      files[n++] = argv[i];
    }
  }
  xt_jobs jobs;
  int status = c == NULL                       ? usage("a command is missing", "")
               : n == 0                        ? usage("files are missing", "")
               : is_input(output, files, n)    ? usage("the output is one of the inputs: ", output)
               : xt_jobs_open(&jobs, files, n) ? write_output(c, &jobs, output)
                                               : 2;
  if (status < 2) {
    xt_jobs_close(&jobs);
  }
  free(files);
  return status;
}
