// xml_write.c: tree into text.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/quiet.h"
#include "base/trust.h"
#include "base/util.h"
#include "os/own_file.h"
#include "topo/xml_priv.h"

// Text that is only counted while `at` is NULL.
typedef struct xml_sink {
  char *at;
  size_t size;
} xml_sink;

static void xml_put(xml_sink *s, const char *text, size_t size)
{
  if (s->at != NULL) {
    memcpy(s->at + s->size, text, size);
  }
  s->size += size;
}

static void xml_puts(xml_sink *s, const char *text)
{
  xml_put(s, text, strlen(text));
}

// What stands for a byte of a value; NULL: the byte itself. Blanks other than the space would come back as spaces.
static const char *xml_escaped(char c)
{
  switch (c) {
  case '&': return "&amp;";
  case '<': return "&lt;";
  case '>': return "&gt;";
  case '"': return "&quot;";
  case '\t': return "&#9;";
  case '\n': return "&#10;";
  case '\r': return "&#13;";
  default: return NULL;
  }
}

static void xml_put_value(xml_sink *s, const char *value)
{
  for (; *value != 0; value++) {
    const char *e = xml_escaped(*value);
    if (e != NULL) {
      xml_puts(s, e);
    } else {
      xml_put(s, value, 1);
    }
  }
}

// "<" or "</" of an element at its depth below the top.
static void xml_put_begin(xml_sink *s, int depth, const char *begin, const char *tag)
{
  for (int i = 0; i < depth; i++) {
    xml_puts(s, "  ");
  }
  xml_puts(s, begin);
  xml_puts(s, tag);
}

static void xml_put_open(xml_sink *s, const tt_xml_node *node, int depth)
{
  xml_put_begin(s, depth, "<", node->tag);
  for (const tt_xml_attr *a = node->attrs; a != NULL; a = a->next) {
    xml_puts(s, " ");
    xml_puts(s, a->name);
    xml_puts(s, "=\"");
    xml_put_value(s, a->value);
    xml_puts(s, "\"");
  }
  xml_puts(s, node->child == NULL ? "/>\n" : ">\n");
}

static void xml_put_tree(xml_sink *s, const tt_xml_node *top)
{
  int depth = 0;
  for (const tt_xml_node *n = top; n != NULL;) {
    xml_put_open(s, n, depth);
    if (n->child != NULL) {
      n = n->child;
      depth++;
      continue;
    }
    while (n != top && n->next == NULL) {
      n = n->parent;
      xml_put_begin(s, --depth, "</", n->tag);
      xml_puts(s, ">\n");
    }
    n = n == top ? NULL : n->next;
  }
}

ncclResult_t tt_xml_text(const tt_xml *xml, char **text, size_t *size)
{
  xml_sink s = {NULL, 0};
  xml_put_tree(&s, xml->root);
  s.at = tt_calloc(1, s.size + 1);
  if (s.at == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory for %zu bytes of text", xml->name, s.size);
  }
  s.size = 0;
  xml_put_tree(&s, xml->root);
  *text = s.at;
  *size = s.size;
  return ncclSuccess;
}

// False: errno. Beyond ulimit -f, and to a pipe without a reader, the kernel's signals are held back. What a file
// system has put off fails at the close.
static bool xml_write_and_close(int fd, const char *text, size_t size)
{
  tt_quiet q;
  tt_quiet_begin(&q);
  bool good = tt_write_all(fd, text, size);
  int e = errno;
  if (close(fd) != 0 && good) {
    good = false;
    e = errno;
  }
  tt_quiet_end(&q);
  errno = e;
  return good;
}

ncclResult_t tt_xml_write(const tt_xml *xml, const char *path)
{
  char *text = NULL, why[TT_TRUST_WHY];
  size_t size = 0;
  TT_TRY(tt_xml_text(xml, &text, &size));
  int fd = tt_trust_create(path, 0, why);
  bool good = fd >= 0;
  if (good) {
    fcntl(fd, F_SETFL, 0); // the reader of a pipe may be slow
    good = xml_write_and_close(fd, text, size);
    snprintf(why, sizeof why, "%s", good ? "" : strerror(errno));
  }
  tt_free(text);
  return good ? ncclSuccess : tt_fail(ncclSystemError, "%s: cannot be written: %s", path, why);
}
