// figures.c: see figures.h.
#define _GNU_SOURCE // mkostemp
#include "tools/figures.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

size_t tt_figures_write(const tt_figures *f, const tt_machine_kind *kind, const char *host,
                        char out[TT_FIGURES_MAX_BYTES])
{
  size_t at = 0;
  char day[32] = "";
  struct tm tm;
  time_t when = (time_t)f->when;
  if (gmtime_r(&when, &tm) != NULL) {
    strftime(day, sizeof day, "%Y-%m-%d %H:%M:%S UTC", &tm);
  }
  at += (size_t)snprintf(
      out, TT_FIGURES_MAX_BYTES,
      "# Figures of this machine, measured by tutti-tune --machine on %s. The library reads them (docs/tuning.md).\n"
      "version = %d\ncpu = %.63s\ncores = %d\nkernel = %.63s\nhost = %.63s\nmeasured = %lld\n",
      day, TT_FIGURES_VERSION, kind->cpu, kind->cores, kind->kernel, host, (long long)f->when);
  for (int i = 0; i < TT_FIGURES; i++) {
    const tt_figure_row *row = tt_figure_row_at((tt_figure)i);
    at += (size_t)snprintf(out + at, TT_FIGURES_MAX_BYTES - at, "%s = %u\n", row->name, f->value[i]);
  }
  return at;
}

// ---- The file ----

static void say_why(char why[TT_OWN_FILE_WHY], const char *what, int e)
{
  snprintf(why, TT_OWN_FILE_WHY, "%s%s", what, strerror(e));
}

// Makes the folders above `path`, which is changed meanwhile. False: errno.
static bool make_folders(char *path)
{
  for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
    *slash = '/';
    if (!made) {
      return false;
    }
  }
  return true;
}

// A new file; `name` ends with XXXXXX, which become its own. False: errno, and nothing is left of it.
static bool write_new(char *name, const char *text, size_t size)
{
  int fd = mkostemp(name, O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  bool good = tt_write_all(fd, text, size) && fsync(fd) == 0;
  int e = errno;
  good = close(fd) == 0 && good;
  if (!good) {
    unlink(name);
    errno = e;
  }
  return good;
}

bool tt_own_file_write(const char *path, const char *text, size_t size, char why[TT_OWN_FILE_WHY])
{
  char beside[PATH_MAX];
  if (path[0] == 0 || snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= (int)sizeof beside) {
    say_why(why, "", path[0] == 0 ? ENOENT : ENAMETOOLONG);
    return false;
  }
  if (!make_folders(beside)) {
    say_why(why, "its folder cannot be made: ", errno);
    return false;
  }
  bool good = write_new(beside, text, size);
  if (good && rename(beside, path) != 0) {
    int e = errno;
    unlink(beside);
    errno = e;
    good = false;
  }
  if (!good) {
    say_why(why, "", errno);
  }
  return good;
}
