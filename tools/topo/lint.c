// lint.c: findings: kept, sorted, told.
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "draw.h"
#include "lint_priv.h"
#include "machine.h"

// Where the next finding goes: behind the others or, where there is no room and it is an error, in place of the last
// one that is none.
static int place_for(const xp_findings *f, xp_level level)
{
  int i = f->count - (f->count == f->room);
  while (f->count == f->room && i >= 0 && (level < XP_ERROR || f->list[i].reason->level == XP_ERROR)) {
    i--;
  }
  return i;
}

void xp_find(xp_findings *f, const tt_xml_node *at, const xp_reason *reason, const char *fmt, ...)
{
  char text[512];
  va_list ap;
  f->counts[reason->level]++;
  int place = f->no_memory ? -1 : place_for(f, reason->level);
  if (place < 0) {
    return;
  }
  int n = snprintf(text, sizeof(text), "<%.32s> ", at->tag);
  va_start(ap, fmt);
  vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
  va_end(ap);
  tt_xml_plain(text);
  char *kept = tt_strdup(text);
  if (kept == NULL) {
    f->no_memory = true;
    return;
  }
  tt_free(f->list[place].text); // NULL where none was
  f->list[place] = (xp_finding){at->line, f->order++, reason, kept};
  f->count = TT_MAX(f->count, place + 1);
}

bool xp_has_error(const xp_findings *f, int line)
{
  for (int i = 0; i < f->count; i++) {
    if (f->list[i].line == line && f->list[i].reason->level == XP_ERROR) {
      return true;
    }
  }
  return false;
}

long long xp_number(const tt_xml_node *x, const char *name, long long def)
{
  const char *text = tt_xml_get(x, name);
  if (text == NULL) {
    return def;
  }
  char *end = NULL;
  const char *digits = text + strspn(text, " \t\r\n-+");
  errno = 0;
  long long v = strtoll(text, &end, digits[0] == '0' && (digits[1] | 0x20) == 'x' ? 16 : 10);
  return end == text || errno != 0 || end[strspn(end, " \t\r\n")] != 0 ? def : v;
}

static int compare_findings(const void *a, const void *b)
{
  const xp_finding *x = a, *y = b;
  return x->line != y->line ? (x->line < y->line ? -1 : 1) : x->order - y->order;
}

static void tell(const xp_findings *f, const char *file, FILE *out)
{
  static const char *const levels[XP_LEVELS] = {"note", "warning", "error"};
  for (int i = 0; i < f->count; i++) {
    const xp_finding *x = &f->list[i];
    fprintf(out, "%s:%d: %s: %s\n", file, x->line, levels[x->reason->level], x->text);
    // The same reason again is not explained again.
    bool known = false;
    for (int j = 0; j < i && !known; j++) {
      known = f->list[j].reason == x->reason;
    }
    if (!known) {
      fprintf(out, "    why: %s\n    do:  %s\n", x->reason->why, x->reason->advice);
    }
  }
  long all = f->counts[XP_NOTE] + f->counts[XP_WARNING] + f->counts[XP_ERROR];
  if (all > f->count) {
    fprintf(out, "%s: %ld more, not shown\n", file, all - f->count);
  }
  if (all == 0) {
    fprintf(out, "%s: nothing found\n", file);
  } else {
    fprintf(out, "%s: %ld error%s, %ld warning%s, %ld note%s\n", file, f->counts[XP_ERROR],
            f->counts[XP_ERROR] == 1 ? "" : "s", f->counts[XP_WARNING], f->counts[XP_WARNING] == 1 ? "" : "s",
            f->counts[XP_NOTE], f->counts[XP_NOTE] == 1 ? "" : "s");
  }
}

static void check(xp_findings *f, tt_xml *xml)
{
  xp_lint_elements(f, xml);
  if (strcmp(xml->root->tag, "system") == 0) {
    xp_lint_machine(f, xml);
    xp_lint_model(f, xml);
  } else if (strcmp(xml->root->tag, "graphs") == 0) {
    xp_lint_graphs(f, xml);
  }
}

int xp_lint(const char *file, FILE *out)
{
  xp_findings f = {.room = XP_MAX_FINDINGS};
  tt_xml *xml = NULL;
  int code = 2;
  bool made = false;
  f.list = tt_calloc(XP_MAX_FINDINGS, sizeof(*f.list));
  if (f.list == NULL) {
    (void)tt_fail(ncclSystemError, "%s: no memory", file);
    (void)xp_complain(code);
  } else if (xp_read(file, &made, &xml) != ncclSuccess) {
    (void)xp_complain(code);
  } else {
    check(&f, xml);
    qsort(f.list, (size_t)f.count, sizeof(*f.list), compare_findings);
    if (made) {
      fprintf(out, "%s: no file of its own: lines are those of tutti-topo show --format xml\n", xml->name);
    }
    tell(&f, xml->name, out);
    code = f.no_memory ? 2 : f.counts[XP_NOTE] + f.counts[XP_WARNING] + f.counts[XP_ERROR] > 0;
  }
  for (int i = 0; i < f.count; i++) {
    tt_free(f.list[i].text);
  }
  tt_free(f.list);
  tt_xml_destroy(xml);
  return fflush(out) != 0 || ferror(out) ? 2 : code;
}
