// print.c: see print.h.
#include "print.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

static bool wants_colour(const xp_options *o, bool terminal)
{
  const char *no = getenv("NO_COLOR"), *kind = getenv("TERM");
  if (o->colour != NULL && strcmp(o->colour, "auto") != 0) {
    return strcmp(o->colour, "always") == 0;
  }
  return terminal && (no == NULL || no[0] == 0) && (kind == NULL || strcmp(kind, "dumb") != 0);
}

// Standard output is for results alone: descriptor 1, where the library's log goes (NCCL_DEBUG), becomes standard
// error.
static FILE *standard_output(void)
{
  int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
  if (f != NULL) {
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  return f;
}

// Opens a file beside the one that is to be written; what is no regular file (a device, a pipe) is written directly.
static FILE *open_beside(xp_print *p)
{
  struct stat st;
  bool known = stat(p->name, &st) == 0;
  if (known && !S_ISREG(st.st_mode)) {
    return fopen(p->name, "we");
  }
  p->target = known ? realpath(p->name, NULL) : strdup(p->name);
  size_t room = p->target != NULL ? strlen(p->target) + sizeof(".XXXXXX") : 0;
  p->beside = room > 0 ? malloc(room) : NULL;
  if (p->beside == NULL) {
    return NULL;
  }
  snprintf(p->beside, room, "%s.XXXXXX", p->target);
  int fd = mkstemp(p->beside);
  mode_t mask = umask(0);
  (void)umask(mask);
  if (fd < 0 || fchmod(fd, known ? st.st_mode & 0777 : 0666 & ~mask) != 0) {
    return NULL;
  }
  return fdopen(fd, "w");
}

bool xp_print_open(const xp_options *o, xp_print *out)
{
  struct winsize size = {0};
  setlocale(LC_CTYPE, "");
  bool file = o->output != NULL && strcmp(o->output, "-") != 0;
  *out = (xp_print){.name = file ? o->output : "standard output"};
  out->f = file ? open_beside(out) : standard_output();
  if (out->f == NULL) {
    fprintf(stderr, "tutti-topo: %s: cannot be written: %s\n", out->name, strerror(errno));
    free(out->target);
    free(out->beside);
    return false;
  }
  bool terminal = isatty(fileno(out->f)) == 1;
  out->colour = wants_colour(o, terminal);
  out->utf8 = !o->ascii && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  if (terminal && ioctl(fileno(out->f), TIOCGWINSZ, &size) == 0) {
    out->width = size.ws_col;
  }
  out->width = o->width > 0 ? o->width : out->width;
  return true;
}

bool xp_print_close(xp_print *p, bool good)
{
  bool failed = ferror(p->f) != 0 || fflush(p->f) != 0;
  int error = errno; // that of the write that failed: nothing after it sets another
  if (fclose(p->f) != 0 && !failed) {
    failed = true;
    error = errno;
  }
  if (p->target != NULL) {
    bool kept = good && !failed;
    if (kept && rename(p->beside, p->target) != 0) {
      failed = true;
      error = errno;
    }
    if (!kept || failed) {
      (void)unlink(p->beside);
    }
  }
  if (failed) {
    fprintf(stderr, "tutti-topo: %s: cannot be written: %s\n", p->name, strerror(error));
  }
  free(p->target);
  free(p->beside);
  return !failed;
}

const char *xp_ansi(const xp_print *p, xp_colour c)
{
  static const char *const codes[] = {"\033[0m",    "\033[1m",  "\033[2m",  "\033[1;32m", "\033[1;36m",
                                      "\033[1;34m", "\033[35m", "\033[32m", "\033[31m"};
  return p->colour ? codes[c] : "";
}

const char *xp_arrow(const xp_print *p)
{
  return p->utf8 ? "→" : "->";
}

// Ends a text that has no more room behind one of its words.
static void end_full(xp_text *t)
{
  static const char dots[] = " ...";
  size_t at = sizeof(t->buf) - sizeof(dots);
  while (at > 0 && t->buf[at] != ' ') {
    at--;
  }
  memcpy(t->buf + at, dots, sizeof(dots));
  t->n = at + sizeof(dots) - 1;
  t->full = true;
}

static void add_list(xp_text *t, const char *fmt, va_list ap)
{
  size_t room = sizeof(t->buf) - t->n;
  int n = t->full ? 0 : vsnprintf(t->buf + t->n, room, fmt, ap);
  if (n > 0 && (size_t)n >= room) {
    end_full(t);
  } else {
    t->n += n > 0 ? (size_t)n : 0;
  }
}

void xp_add(xp_text *t, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  add_list(t, fmt, ap);
  va_end(ap);
}

// Columns of `n` bytes.
static int columns_of(const char *text, size_t n)
{
  int columns = 0;
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '\033') {
      i += strcspn(text + i, "m");
    } else {
      columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
  }
  return columns;
}

int xp_columns(const char *text)
{
  return columns_of(text, strlen(text));
}

void xp_flow(const xp_print *p, int at, int indent, const char *text)
{
  enum { GAP = 2, LEAST = 20 }; // LEAST: columns worth to be filled
  int width = p->width > 0 ? p->width : INT_MAX;
  bool first = at == 0, below = at > 0 && width - at - GAP < LEAST;
  int begin = first || below ? indent : at + GAP;
  if (!first) {
    fprintf(p->f, below ? "\n%*s" : "%*s", below ? indent : GAP, "");
    at = begin;
  }
  while (*text != 0) {
    int gap = (int)strspn(text, " "), length = (int)strcspn(text + gap, " "),
        columns = columns_of(text + gap, (size_t)length);
    bool fits = at + gap + columns <= width || first || at == begin;
    fprintf(p->f, fits ? "%*s%.*s" : "\n%*s%.*s", fits ? gap : begin, "", length, text + gap);
    at = (fits ? at + gap : begin) + columns;
    text += gap + length;
    first = false;
  }
  fputc('\n', p->f);
}

void xp_say(const xp_print *p, int indent, const char *fmt, ...)
{
  xp_text t = {0};
  va_list ap;
  va_start(ap, fmt);
  add_list(&t, fmt, ap);
  va_end(ap);
  xp_flow(p, 0, indent, t.buf);
}

const char *xp_clean(const char *text, char *out, size_t size)
{
  size_t n = 0;
  for (const unsigned char *c = (const unsigned char *)text; *c != 0 && n + 1 < size; c++) {
    bool c1 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0; // controls of eight bits, in UTF-8
    out[n++] = *c < 0x20 || *c == 0x7f || c1 ? '?' : (char)*c;
    c += c1;
  }
  out[n] = 0;
  return out;
}

void xp_json_text(FILE *f, const char *text)
{
  fputc('"', f);
  for (const unsigned char *c = (const unsigned char *)text; *c != 0; c++) {
    if (*c == '"' || *c == '\\') {
      fputc('\\', f);
    }
    if (*c < 0x20) {
      fprintf(f, "\\u%04x", *c);
    } else {
      fputc(*c, f);
    }
  }
  fputc('"', f);
}

const char *xp_fixed(double value, int width, char *out, size_t size)
{
  for (int decimals = 2; decimals >= 0; decimals--) {
    if (snprintf(out, size, "%*.*f", width, decimals, value) <= width) {
      return out;
    }
  }
  snprintf(out, size, "%*.*e", width, width >= 7 ? 1 : 0, value);
  return out;
}

const char *xp_bytes(size_t bytes, char *out, size_t size)
{
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (unit + 1 < TT_COUNT(units) && bytes > 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    unit++;
  }
  snprintf(out, size, "%zu %s", bytes, units[unit]);
  return out;
}
