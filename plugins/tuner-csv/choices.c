#include "choices.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIELDS = 10, FIELDS_LEAST = 8, LINE_BYTES = 1024 };

static const char *const funcs[] = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
static const char *const algos[] = {"tree",   "ring", "collnet_direct", "collnet_chain", "nvls",         "nvls_tree",
                                    "pat",    "rd",   "oneshot",        "direct",        "direct_write", "hier_ring",
                                    "hier_rd"};
static const char *const protos[] = {"ll", "ll128", "simple"};
#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static int find(const char *const *names, int n, const char *name)
{
  for (int i = 0; i < n; i++) {
    if (strcasecmp(names[i], name) == 0) {
      return i;
    }
  }
  return -1;
}

// Cuts a line at its commas, without the blanks around each field. Returns how many there are; more than FIELDS: FIELDS
// + 1.
static int split(char *line, char **fields)
{
  int n = 0;
  for (char *p = line; p != NULL;) {
    char *comma = strchr(p, ',');
    if (comma != NULL) {
      *comma = '\0';
    }
    p += strspn(p, " \t\"");
    char *end = p + strlen(p);
    while (end > p && strchr(" \t\r\"", end[-1]) != NULL) {
      *--end = '\0';
    }
    if (n == FIELDS) {
      return FIELDS + 1;
    }
    fields[n++] = p;
    p = comma != NULL ? comma + 1 : NULL;
  }
  return n;
}

static bool size_of(const char *text, size_t *out)
{
  char *end;
  errno = 0;
  *out = (size_t)strtoull(text, &end, 10);
  return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

// -1, or from `least` on.
static bool number_of(const char *text, int least, int *out)
{
  char *end;
  errno = 0;
  long x = strtol(text, &end, 10);
  *out = (int)x;
  return text[0] != '\0' && *end == '\0' && errno == 0 && (x == -1 || (x >= least && x <= 1 << 30));
}

static int wrong(char why[128], const char *what, const char *field)
{
  snprintf(why, 128, "%s '%.40s'", what, field);
  return -1;
}

static int parse_line(const char *line, choice *out, char why[128])
{
  char copy[LINE_BYTES], *f[FIELDS];
  choice c = {.ops = -1, .registered = -1};
  line += strspn(line, " \t\r");
  if (line[0] == '\0' || line[0] == '#') {
    return 0;
  }
  if (strlen(line) >= sizeof copy) {
    return wrong(why, "a line that is too long:", line);
  }
  strcpy(copy, line);
  int n = split(copy, f);
  if (strcasecmp(f[0], "collective") == 0 || strcasecmp(f[0], "collective_type") == 0 ||
      strcasecmp(f[0], "colltype") == 0) {
    return 0;
  }
  if (n < FIELDS_LEAST || n > FIELDS) {
    snprintf(why, 128, "%s fields: there are 8 to 10", n > FIELDS ? "too many" : "too few");
    return -1;
  }
  int func = find(funcs, COUNT(funcs), f[0]);
  c.algo = find(algos, COUNT(algos), f[3]);
  c.proto = find(protos, COUNT(protos), f[4]);
  if (func < 0 || c.algo < 0 || c.proto < 0) {
    return func < 0     ? wrong(why, "no collective is called", f[0])
           : c.algo < 0 ? wrong(why, "no algorithm is called", f[3])
                        : wrong(why, "no protocol is called", f[4]);
  }
  c.func = (ncclFunc_t)func;
  if (!size_of(f[1], &c.min) || !size_of(f[2], &c.max) || c.min > c.max) {
    snprintf(why, 128, "no range of bytes: '%.40s' to '%.40s'", f[1], f[2]);
    return -1;
  }
  int *const numbers[] = {&c.channels, &c.nodes, &c.ranks, &c.ops, &c.registered};
  for (int i = 5; i < n; i++) {
    if (!number_of(f[i], i == 9 ? 0 : 1, numbers[i - 5])) {
      return wrong(why, i == 9 ? "neither -1 nor a number from 0 on:" : "neither -1 nor a number from 1 on:", f[i]);
    }
  }
  *out = c;
  return 1;
}

// In the C locale: names are compared without case, and in Turkish "i" is not the small "I".
int choice_parse(const char *line, choice *out, char why[128])
{
  locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
  int res = parse_line(line, out, why);
  uselocale(before);
  return res;
}

static bool append(choices *all, size_t *room, const choice *c)
{
  if (all->count == *room) {
    size_t more = *room * 2 + 16;
    choice *list = realloc(all->list, more * sizeof *list);
    if (list == NULL) {
      return false;
    }
    all->list = list;
    *room = more;
  }
  all->list[all->count++] = *c;
  return true;
}

// A file, and nothing that would have a rank wait. NULL: `why`.
static FILE *open_file(const char *name, bool named, char why[TT_TRUST_WHY])
{
  struct stat st;
  FILE *f = NULL;
  int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY), error = errno;
  if (fd >= 0) {
    error = fstat(fd, &st) != 0 ? errno : S_ISREG(st.st_mode) ? 0 : S_ISDIR(st.st_mode) ? EISDIR : ENOTSUP;
  }
  if (error == 0 && !tt_trust_contents(fd, named, why)) {
    close(fd);
    return NULL;
  }
  if (error == 0 && (f = fdopen(fd, "r")) != NULL) {
    return f;
  }
  snprintf(why, TT_TRUST_WHY, "%s", strerror(error != 0 ? error : errno));
  if (fd >= 0) {
    close(fd);
  }
  return NULL;
}

bool choices_read(const char *name, bool named, choices *out, choices_complain *complain, void *arg,
                  char why[TT_TRUST_WHY])
{
  char *line = NULL, wrong[128];
  size_t size = 0, room = 0;
  ssize_t n;
  bool ok = true;
  FILE *f = open_file(name, named, why);
  *out = (choices){0};
  if (f == NULL) {
    return false;
  }
  for (int number = 1; ok && (n = getline(&line, &size, f)) >= 0; number++) {
    choice c;
    line[strcspn(line, "\n")] = '\0';
    int what = choice_parse(line, &c, wrong);
    if (what < 0) {
      complain(arg, number, wrong);
    }
    ok = what <= 0 || append(out, &room, &c);
  }
  ok &= ferror(f) == 0;
  free(line);
  fclose(f);
  if (!ok) {
    snprintf(why, TT_TRUST_WHY, "%s", strerror(errno));
    free(out->list);
    *out = (choices){0};
  }
  return ok;
}
