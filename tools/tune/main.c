// main.c: tutti-tune. See tutti-tune(1).
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/trust.h"
#include "tools/figures.h"
#include "os/proc.h"
#include "tune.h"

enum { FINE = 0, FAILED = 1, BAD_USAGE = 2, BAR = 30 };

static const char usage[] =
    "usage: tutti-tune [OPTION]...\n\n"
    "Measures broadcast, reduce, all-gather, reduce-scatter and all-reduce on this machine with every algorithm and\n"
    "protocol. Writes those that are at least 5% faster than the library's own choice. The library reads the file\n"
    "automatically; NCCL_TUNER_PLUGIN=none turns that off.\n\n"
    "  -n, --ranks N,N...   numbers of ranks, each rank a process (default: 2, and the number of cores)\n"
    "  -s, --seconds N      time limit for all measurements (default 60)\n"
    "  -m, --max-bytes N    largest message (default 16777216)\n"
    "  -o, --output FILE    file to write; - is standard output (default ~/.nccl/tuner.csv)\n"
    "  -M, --machine        measure only this machine's cost figures, in a tenth of a second. Write them to --output,\n"
    "                       else to the file that the library reads (NCCL_HOST_FIGURES, else in ~/.cache/tutti)\n"
    "  -h, --help           print this text\n\n"
    "On a terminal a progress bar is shown. Exit status: 0 written; 1 measuring or writing failed; 2 wrong usage.\n";

static bool number(const char *text, double least, double most, double *out)
{
  char *end;
  errno = 0;
  *out = strtod(text, &end);
  return errno == 0 && end != text && *end == '\0' && *out >= least && *out <= most;
}

static bool read_ranks(const char *text, tn_options *o)
{
  char copy[256], *state = NULL;
  if (strlen(text) >= sizeof copy) {
    return false;
  }
  strcpy(copy, text);
  o->nranks = 0;
  for (char *item = strtok_r(copy, ",", &state); item != NULL; item = strtok_r(NULL, ",", &state)) {
    double n;
    if (o->nranks == 8 || !number(item, 2, TN_MAX_RANKS, &n) || n != (int)n) {
      return false;
    }
    o->ranks[o->nranks++] = (int)n;
  }
  return o->nranks > 0;
}

static int bad(const char *option, const char *value, const char *wanted)
{
  fprintf(stderr, "tutti-tune: --%s %.80s: expected %s; tutti-tune -h lists the options\n", option, value, wanted);
  return BAD_USAGE;
}

// -1: go on; else the exit status.
static int read_options(int argc, char **argv, tn_options *o)
{
  static const struct option list[] = {{"ranks", required_argument, NULL, 'n'},
                                       {"seconds", required_argument, NULL, 's'},
                                       {"max-bytes", required_argument, NULL, 'm'},
                                       {"output", required_argument, NULL, 'o'},
                                       {"machine", no_argument, NULL, 'M'},
                                       {"help", no_argument, NULL, 'h'},
                                       {NULL, 0, NULL, 0}};
  double x;
  for (int c; (c = getopt_long(argc, argv, "n:s:m:o:Mh", list, NULL)) != -1;) {
    switch (c) {
    case 'n':
      if (!read_ranks(optarg, o)) {
        return bad("ranks", optarg, "up to 8 numbers from 2 to 64 with commas between them");
      }
      break;
    case 's':
      if (!number(optarg, 1, 86400, &o->seconds)) {
        return bad("seconds", optarg, "a number from 1 to 86400");
      }
      break;
    case 'm':
      if (!number(optarg, 64, 1073741824, &x)) {
        return bad("max-bytes", optarg, "a number from 64 to 1073741824");
      }
      o->max_bytes = (size_t)x;
      break;
    case 'o': o->out = optarg; break;
    case 'M': o->machine = true; break;
    case 'h': fputs(usage, stdout); return FINE;
    default: fputs("tutti-tune -h lists the options\n", stderr); return BAD_USAGE;
    }
  }
  if (optind < argc) {
    fprintf(stderr, "tutti-tune: '%.80s' is no option; tutti-tune -h lists them\n", argv[optind]);
    return BAD_USAGE;
  }
  return -1;
}

// ---- Measuring ----

// Each is measured so often, with the others in between: a busy moment spoils one of them.
enum { PASSES = 2 };

static void show(int done, int all, const tn_times *t, int config)
{
  if (!isatty(STDERR_FILENO)) {
    return;
  }
  int full = done * BAR / all;
  const char *name = tn_configs[config].name;
  fprintf(stderr, "\r[%.*s%*s] %3d%%  %d ranks, %-20s", full, "##############################", BAR - full, "",
          done * 100 / all, t->ranks,
          done == all    ? "done"
          : name != NULL ? name
                         : "by itself");
  if (done == all) {
    fputc('\n', stderr);
  }
}

static bool has_times(const double us[TN_FUNCS][TN_SIZES])
{
  for (int f = 0; f < TN_FUNCS; f++) {
    if (us[f][0] > 0) {
      return true;
    }
  }
  return false;
}

// True: the library's own choice has times, of one function at least, that others can be compared with.
static bool measure_ranks(const tn_options *o, tn_times *t, int *step, double end)
{
  int all = o->nranks * tn_nconfigs * PASSES;
  for (int i = 0; i < tn_nconfigs * PASSES; i++, (*step)++) {
    int c = i % tn_nconfigs;
    show(*step, all, t, c);
    double left = end - tn_now();
    if (left <= 0) {
      continue;
    }
    double slot = left / (all - *step) / (TN_FUNCS * t->nsizes);
    bool good = tn_measure(t, c, slot, tn_now() + left / (all - *step));
    if (!good && c == 0) {
      fprintf(stderr, "\ntutti-tune: %d ranks cannot be measured; NCCL_DEBUG=WARN says more\n", t->ranks);
    }
  }
  return has_times(t->us[0]);
}

// ---- The file ----

static void write_head(FILE *f, const tn_options *o)
{
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  fprintf(f, "# Choices that tutti-tune has measured on %s (%ld cores, %.0f seconds): read by libnccl-tuner-csv.so.\n",
          host, sysconf(_SC_NPROCESSORS_ONLN), o->seconds);
  fprintf(f, "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff\n");
}

static bool default_name(char name[PATH_MAX])
{
  const char *home = getenv("HOME");
  if (home == NULL || home[0] == '\0' || snprintf(name, PATH_MAX, "%s/.nccl", home) >= PATH_MAX - 16) {
    fprintf(stderr, "tutti-tune: HOME is not set, or too long: use --output\n");
    return false;
  }
  if (mkdir(name, 0755) != 0 && errno != EEXIST) {
    fprintf(stderr, "tutti-tune: %s cannot be made: %s\n", name, strerror(errno));
    return false;
  }
  strcat(name, "/tuner.csv");
  return true;
}

// Where the choices go.
typedef struct place {
  char name[PATH_MAX];   // "": standard output
  char beside[PATH_MAX]; // written first, then put in the place of `name`; "": `name` is a pipe, a device or the like,
                         // and written as it is
} place;

// Can a file be made in the folder of this name?
static bool folder_takes_files(const char *name)
{
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%s", name);
  return access(dirname(folder), W_OK | X_OK) == 0;
}

// Before minutes of measuring: can it be written at all? False: errno.
static bool look_at(place *p)
{
  struct stat st;
  char real[PATH_MAX];
  bool there = stat(p->name, &st) == 0;
  if (!there && errno != ENOENT) {
    return false;
  }
  if (there && S_ISDIR(st.st_mode)) {
    errno = EISDIR;
    return false;
  }
  if (there && !S_ISREG(st.st_mode)) {
    return access(p->name, W_OK) == 0;
  }
  if (there && realpath(p->name, real) == NULL) {
    return false;
  }
  if (there) {
    strcpy(p->name, real); // a link stays a link
  }
  if (snprintf(p->beside, sizeof p->beside, "%s.%d", p->name, (int)getpid()) >= (int)sizeof p->beside) {
    errno = ENAMETOOLONG;
    return false;
  }
  return folder_takes_files(p->name);
}

static bool cannot(const char *name)
{
  fprintf(stderr, "tutti-tune: %.*s cannot be written: %s\n", PATH_MAX, name, strerror(errno));
  return false;
}

// False: said why.
static bool find_place(const tn_options *o, place *p)
{
  *p = (place){.name = ""};
  if (o->out != NULL && strcmp(o->out, "-") == 0) {
    return true;
  }
  if (o->out == NULL && !default_name(p->name)) {
    return false;
  }
  if (o->out != NULL && snprintf(p->name, sizeof p->name, "%s", o->out) >= (int)sizeof p->name) {
    errno = ENAMETOOLONG;
    return cannot(o->out);
  }
  return look_at(p) || cannot(p->name);
}

// A file is written beside and put in its place, so that a job that starts now reads the old one or the new one.
static bool put_file(const place *p, const char *text, size_t size)
{
  bool replaces = p->beside[0] != '\0';
  const char *beside = replaces ? p->beside : p->name;
  char why[TT_TRUST_WHY];
  int fd = replaces ? tt_trust_create(beside, O_EXCL, why) : -1; // nobody's link that waits under this name
  FILE *f = replaces ? fd >= 0 ? fdopen(fd, "w") : NULL : fopen(beside, "we");
  if (f == NULL) {
    return false;
  }
  bool good = fwrite(text, 1, size, f) == size && fflush(f) == 0 && (!replaces || fsync(fileno(f)) == 0);
  good &= fclose(f) == 0;
  if (!replaces) {
    return good;
  }
  good = good && rename(beside, p->name) == 0;
  if (!good) {
    int saved = errno;
    unlink(beside);
    errno = saved;
  }
  return good;
}

static int put(const place *p, const char *text, size_t size, int lines)
{
  bool to_stdout = p->name[0] == '\0';
  if (to_stdout ? fwrite(text, 1, size, stdout) != size || fflush(stdout) != 0 : !put_file(p, text, size)) {
    cannot(to_stdout ? "standard output" : p->name);
    return FAILED;
  }
  if (!to_stdout) {
    printf("%d choices in %s%s\n", lines, p->name, lines == 0 ? ": the library's own are as good" : "");
  }
  return FINE;
}

static int tune(const tn_options *o, const place *p, tn_times *t)
{
  char *text = NULL;
  size_t size = 0;
  int lines = 0, measured = 0, step = 0;
  double end = tn_now() + o->seconds;
  FILE *f = open_memstream(&text, &size);
  if (f == NULL) {
    perror("tutti-tune: no memory");
    return FAILED;
  }
  write_head(f, o);
  for (int i = 0; i < o->nranks; i++) {
    tn_times_begin(t, o->ranks[i], o->max_bytes);
    if (measure_ranks(o, t, &step, end)) {
      measured++;
      lines += tn_write_choices(f, t);
    }
  }
  show(step, o->nranks * tn_nconfigs * PASSES, t, 0);
  bool written = fclose(f) == 0 && measured > 0;
  if (measured == 0) {
    fprintf(stderr, "tutti-tune: nothing could be measured within %.0f seconds: nothing is written\n", o->seconds);
  }
  int status = written ? put(p, text, size, lines) : FAILED;
  free(text);
  return status;
}

// ---- The machine's figures ----

static int put_figures(const char *path, const tt_figures *f)
{
  char text[TT_FIGURES_MAX_BYTES], why[TT_OWN_FILE_WHY];
  tt_machine_kind kind = tt_machine_kind_get();
  size_t size = tt_figures_write(f, &kind, tt_proc_host_name(), text);
  if (strcmp(path, "-") == 0) {
    return fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0 ? FINE : FAILED;
  }
  if (!tt_own_file_write(path, text, size, why)) {
    fprintf(stderr, "tutti-tune: %.*s cannot be written: %s\n", PATH_MAX, path, why);
    return FAILED;
  }
  printf("figures of this machine in %s: %s\n", path, tt_figures_text(f, text, sizeof text));
  return FINE;
}

static int tune_machine(const tn_options *o)
{
  char path[PATH_MAX], why[TT_FIGURES_WHY];
  bool named;
  tt_figures f;
  if (o->out != NULL && snprintf(path, sizeof path, "%s", o->out) >= (int)sizeof path) {
    fprintf(stderr, "tutti-tune: --output: the path is too long\n");
    return BAD_USAGE;
  }
  if (o->out == NULL && !tt_figures_place(path, sizeof path, &named, why)) {
    fprintf(stderr, "tutti-tune: there is no place for this machine's figures: %s; use --output\n", why);
    return FAILED;
  }
  if (!tn_measure_machine(&f)) {
    fprintf(stderr, "tutti-tune: this machine's figures could not be measured, and nothing is written\n");
    return FAILED;
  }
  return put_figures(path, &f);
}

int main(int argc, char **argv)
{
  int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  tn_options o = {.ranks = {2, cores < 3              ? 4
                               : cores > TN_MAX_RANKS ? TN_MAX_RANKS
                                                      : cores},
                  .nranks = 2,
                  .seconds = 60,
                  .max_bytes = 16u << 20};
  int status = read_options(argc, argv, &o);
  if (status >= 0) {
    return status;
  }
  if (o.machine) {
    return tune_machine(&o);
  }
  place p;
  if (!find_place(&o, &p)) {
    return FAILED;
  }
  tn_times *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (t == MAP_FAILED) {
    perror("tutti-tune: no memory");
    return FAILED;
  }
  return tune(&o, &p, t);
}
