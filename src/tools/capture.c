// capture.c: see capture.h. Entries are sorted by path, so that a folder is a range of them.
#include "tools/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"

#define HEADER "tutti-machine 1"

typedef struct entry {
  const char *path; // without "/" in front
  const char *data; // contents, or the link's target
  size_t size;
  int line;
  bool link;
} entry;

typedef struct capture {
  char *text; // paths and data point into it
  entry *entries;
  int count;
} capture;

static void free_capture(void *files)
{
  capture *c = files;
  if (c == NULL) {
    return;
  }
  tt_free(c->text);
  tt_free(c->entries);
  tt_free(c);
}

static int hex(char c)
{
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Replaces what stands behind a backslash, in place; what comes out is never longer. Returns its size, -1 when
// something else stands there.
static long unescape(char *text, size_t size)
{
  size_t out = 0;
  for (size_t i = 0; i < size; i++) {
    char c = text[i];
    if (c == '\\') {
      char kind = i + 1 < size ? text[i + 1] : 0;
      bool number = kind == 'x' && i + 3 < size && hex(text[i + 2]) >= 0 && hex(text[i + 3]) >= 0;
      if (!number && kind != 'n' && kind != 't' && kind != '\\') {
        return -1;
      }
      c = number ? (char)(hex(text[i + 2]) << 4 | hex(text[i + 3])) : kind == 'n' ? '\n' : kind == 't' ? '\t' : '\\';
      i += number ? 3 : 1;
    }
    text[out++] = c;
  }
  return (long)out;
}

// Absolute, not too long, and each component a name.
static bool is_path(const char *path, size_t size)
{
  if (size < 2 || size >= TT_TREE_PATH || path[0] != '/' || strlen(path) != size) {
    return false;
  }
  for (const char *at = path; *at != 0; at += strcspn(at, "/")) {
    size_t length = strcspn(++at, "/");
    if (length == 0 || (at[0] == '.' && (length == 1 || (length == 2 && at[1] == '.')))) {
      return false;
    }
  }
  return true;
}

// A line that ends with a 0: "f PATH CONTENTS". Returns what is wrong, NULL: nothing.
static const char *read_line(char *line, entry *e)
{
  if ((line[0] != 'f' && line[0] != 'l') || line[1] != ' ') {
    return "\"f PATH CONTENTS\" or \"l PATH TARGET\" is expected";
  }
  char *path = line + 2, *blank = strchr(path, ' ');
  char *data = blank != NULL ? blank + 1 : path + strlen(path);
  size_t path_size = blank != NULL ? (size_t)(blank - path) : strlen(path);
  long size = unescape(data, strlen(data)), n = unescape(path, path_size);
  if (size < 0 || n < 0) {
    return "\\n, \\t, \\\\ or \\x and two digits is expected behind a backslash";
  }
  path[n] = 0;
  data[size] = 0;
  e->link = line[0] == 'l';
  if (!is_path(path, (size_t)n)) {
    return "the path must begin with / and have neither . nor .. nor empty names in it";
  }
  if (e->link && (size == 0 || size >= TT_TREE_PATH || strlen(data) != (size_t)size)) {
    return "the link leads nowhere";
  }
  e->path = path + 1;
  e->data = data;
  e->size = (size_t)size;
  return NULL;
}

static int compare(const void *a, const void *b)
{
  return strcmp(((const entry *)a)->path, ((const entry *)b)->path);
}

static bool same(const entry *a, const entry *b)
{
  return a->link == b->link && a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

// What is told twice counts once, if it is the same.
static ncclResult_t sort_entries(const char *name, capture *c)
{
  int kept = 0;
  if (c->count > 1) {
    qsort(c->entries, (size_t)c->count, sizeof(*c->entries), compare);
  }
  for (int i = 0; i < c->count; i++) {
    const entry *a = kept > 0 ? &c->entries[kept - 1] : NULL, *b = &c->entries[i];
    if (a == NULL || strcmp(a->path, b->path) != 0) {
      c->entries[kept++] = *b;
    } else if (!same(a, b)) {
      return tt_fail(ncclInvalidArgument, "%s:%d: /%.256s is something else at line %d", name, TT_MAX(a->line, b->line),
                     a->path, TT_MIN(a->line, b->line));
    }
  }
  c->count = kept;
  return ncclSuccess;
}

static ncclResult_t read_lines(const char *name, capture *c)
{
  int number = 0;
  char *next = NULL;
  for (char *line = c->text; line != NULL; line = next) {
    number++;
    char *end = strchr(line, '\n');
    next = end != NULL ? end + 1 : NULL;
    if (end != NULL) {
      *end = 0;
    }
    if (number == 1) {
      if (strcmp(line, HEADER) != 0) {
        return tt_fail(ncclInvalidArgument, "%s:1: not a machine's capture: the first line must be \"" HEADER "\"",
                       name);
      }
    } else if (line[0] != 0 && line[0] != '#') {
      const char *wrong = read_line(line, &c->entries[c->count]);
      if (wrong != NULL) {
        return tt_fail(ncclInvalidArgument, "%s:%d: %s", name, number, wrong);
      }
      c->entries[c->count++].line = number;
    }
  }
  return sort_entries(name, c);
}

static ncclResult_t check_size(const char *name, const char *text, size_t size, size_t *lines)
{
  if (size > TT_CAPTURE_BYTES) {
    return tt_fail(ncclInvalidArgument, "%s: longer than %d bytes", name, TT_CAPTURE_BYTES);
  }
  if (size > 0 && memchr(text, 0, size) != NULL) {
    return tt_fail(ncclInvalidArgument, "%s: not a machine's capture: it has zero bytes in it", name);
  }
  size_t count = 1;
  for (size_t i = 0; i < size; i++) {
    count += text[i] == '\n';
  }
  if (count > TT_CAPTURE_FILES) {
    return tt_fail(ncclInvalidArgument, "%s: more than %d lines", name, TT_CAPTURE_FILES);
  }
  *lines = count;
  return ncclSuccess;
}

static ncclResult_t make_capture(const char *name, const void *text, size_t size, capture **out)
{
  size_t lines = 0;
  TT_TRY(check_size(name, text, size, &lines));
  capture *c = tt_calloc(1, sizeof(*c));
  if (c != NULL) {
    c->text = tt_calloc(1, size + 1);
    c->entries = tt_calloc(lines, sizeof(*c->entries));
  }
  if (c == NULL || c->text == NULL || c->entries == NULL) {
    free_capture(c);
    return tt_fail(ncclSystemError, "%s: no memory for %zu bytes", name, size);
  }
  if (size > 0) {
    memcpy(c->text, text, size);
  }
  ncclResult_t res = read_lines(name, c);
  if (res != ncclSuccess) {
    free_capture(c);
    return res;
  }
  *out = c;
  return ncclSuccess;
}

// ---- Looking ----

// Is `path` inside the folder: does it begin with its name and a slash? `folder` "" holds everything.
static bool is_in(const char *path, const char *folder, size_t size)
{
  return size == 0 || (strncmp(path, folder, size) == 0 && path[size] == '/');
}

// First entry that does not come before `text`.
static int lower(const capture *c, const char *text)
{
  int lo = 0, hi = c->count;
  while (lo < hi) {
    int mid = lo + (hi - lo) / 2;
    if (strcmp(c->entries[mid].path, text) < 0) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  return lo;
}

// First entry inside a folder; -1: none. Names such as "a-b" stand between "a" and "a/…", hence the slash.
static int first_in(const capture *c, const char *folder)
{
  char text[TT_TREE_PATH + 1];
  size_t size = strlen(folder);
  if (size >= TT_TREE_PATH) {
    return -1;
  }
  snprintf(text, sizeof(text), "%s%s", folder, size > 0 ? "/" : "");
  int i = lower(c, text);
  return i < c->count && is_in(c->entries[i].path, folder, size) ? i : -1;
}

static const entry *find_entry(const capture *c, const char *path)
{
  int i = lower(c, path);
  return i < c->count && strcmp(c->entries[i].path, path) == 0 ? &c->entries[i] : NULL;
}

static tt_folder_kind look_in_capture(const void *files, const char *path, char *target, size_t size)
{
  const capture *c = files;
  const entry *e = find_entry(c, path);
  if (e == NULL) {
    return path[0] == 0 || first_in(c, path) >= 0 ? TT_FOLDER_FOLDER : TT_FOLDER_NONE;
  }
  if (!e->link) {
    return TT_FOLDER_FILE;
  }
  if (target != NULL) {
    if (e->size >= size) {
      return TT_FOLDER_NONE;
    }
    memcpy(target, e->data, e->size + 1);
  }
  return TT_FOLDER_LINK;
}

static long read_in_capture(const void *files, const char *path, char *buf, size_t size)
{
  const entry *e = find_entry(files, path);
  if (e == NULL || e->link) {
    return -1;
  }
  size_t n = TT_MIN(e->size, size - 1);
  memcpy(buf, e->data, n);
  buf[n] = 0;
  return (long)n;
}

static int list_in_capture(const void *files, const char *path, int max, tt_folder_name_fn *fn, void *arg)
{
  const capture *c = files;
  char last[TT_TREE_PATH] = "";
  size_t size = strlen(path), skip = size > 0 ? size + 1 : 0;
  int count = 0, i = first_in(c, path);
  if (i < 0) {
    return path[0] == 0 ? 0 : -1;
  }
  for (; i < c->count && is_in(c->entries[i].path, path, size) && count < max; i++) {
    char name[TT_TREE_PATH];
    const char *text = c->entries[i].path + skip;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, "/"), text);
    if (strcmp(name, last) == 0) { // more of the same folder
      continue;
    }
    strcpy(last, name);
    count++;
    if (!fn(arg, name)) {
      break;
    }
  }
  return count;
}

// ---- Opening ----

static const tt_tree_ops capture_ops = {look_in_capture, read_in_capture, list_in_capture, free_capture};

ncclResult_t tt_capture_parse(const char *name, const void *text, size_t size, tt_tree **out)
{
  capture *c = NULL;
  TT_TRY(make_capture(name, text, size, &c));
  return tt_tree_over(name, &capture_ops, c, out);
}

ncclResult_t tt_capture_open(const char *path, tt_tree **out)
{
  struct stat st;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
    return tt_tree_open(path, out);
  }
  FILE *f = fopen(path, "rbe");
  char *text = f != NULL ? tt_calloc(1, TT_CAPTURE_BYTES + 1) : NULL; // zeroed pages that are not touched cost nothing
  ncclResult_t res = ncclSuccess;
  if (text == NULL) {
    res = tt_fail(ncclSystemError, "%s: %s", path, f == NULL ? "cannot be read" : "no memory");
  } else {
    size_t size = fread(text, 1, TT_CAPTURE_BYTES + 1, f);
    res = ferror(f) ? tt_fail(ncclSystemError, "%s: cannot be read", path) : tt_capture_parse(path, text, size, out);
  }
  tt_free(text);
  if (f != NULL) {
    fclose(f);
  }
  return res;
}
