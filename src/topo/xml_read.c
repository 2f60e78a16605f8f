// xml_read.c: text into tree, by expat.
#include <errno.h>
#include <expat.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "topo/xml_priv.h"

typedef struct reader {
  tt_xml *xml;
  XML_Parser parser;
  tt_xml_node *at; // the element that is open
  int depth;
  ncclResult_t res; // what was wrong; said already
} reader;

static int line_of(const reader *r)
{
  return (int)XML_GetCurrentLineNumber(r->parser);
}

static void give_up(reader *r, ncclResult_t res)
{
  r->res = res;
  XML_StopParser(r->parser, XML_FALSE);
}

static ncclResult_t check_element(const reader *r, const char *tag, const char **attrs)
{
  const char *file = r->xml->name;
  if (r->depth >= TT_XML_MAX_DEPTH) {
    return tt_fail(ncclInvalidArgument, "%s:%d: <%.64s>: elements inside elements more than %d deep", file, line_of(r), tag,
                   TT_XML_MAX_DEPTH);
  }
  if (strlen(tag) > TT_XML_MAX_VALUE) {
    return tt_fail(ncclInvalidArgument, "%s:%d: an element's name is longer than %d bytes", file, line_of(r), TT_XML_MAX_VALUE);
  }
  for (int i = 0; attrs[i] != NULL; i++) {
    if (strlen(attrs[i]) > TT_XML_MAX_VALUE) {
      return tt_fail(ncclInvalidArgument, "%s:%d: <%.64s>: %.64s is longer than %d bytes", file, line_of(r), tag, attrs[i & ~1],
                     TT_XML_MAX_VALUE);
    }
  }
  return ncclSuccess;
}

static ncclResult_t add_element(reader *r, const char *tag, const char **attrs)
{
  TT_TRY(check_element(r, tag, attrs));
  tt_xml_node *node = NULL;
  TT_TRY(tt_xml_add(r->xml, r->at, tag, &node));
  node->line = line_of(r);
  if (r->at == NULL) {
    r->xml->root = node;
  }
  for (int i = 0; attrs[i] != NULL; i += 2) {
    TT_TRY(tt_xml_set(r->xml, node, attrs[i], attrs[i + 1]));
  }
  r->at = node;
  r->depth++;
  return ncclSuccess;
}

static void XMLCALL on_open(void *arg, const char *tag, const char **attrs)
{
  reader *r = arg;
  if (r->res != ncclSuccess) {
    return;
  }
  ncclResult_t res = add_element(r, tag, attrs);
  if (res != ncclSuccess) {
    give_up(r, res);
  }
}

static void XMLCALL on_close(void *arg, const char *tag)
{
  (void)tag;
  reader *r = arg;
  if (r->res == ncclSuccess) {
    r->at = r->at->parent;
    r->depth--;
  }
}

static void XMLCALL on_text(void *arg, const char *text, int size)
{
  reader *r = arg;
  for (int i = 0; i < size && r->xml->ignored_text == 0; i++) {
    if (strchr(" \t\r\n", text[i]) == NULL) {
      r->xml->ignored_text = line_of(r);
    }
  }
}

static void XMLCALL on_doctype(void *arg, const char *name, const char *sysid, const char *pubid, int internal)
{
  (void)sysid, (void)pubid, (void)internal;
  reader *r = arg;
  give_up(r, tt_fail(ncclInvalidArgument, "%s:%d: <!DOCTYPE %.64s>: document types and entities are not read; leave the declaration out",
                     r->xml->name, line_of(r), name));
}

static ncclResult_t run_parser(reader *r, const char *text, size_t size)
{
  XML_SetUserData(r->parser, r);
  XML_SetElementHandler(r->parser, on_open, on_close);
  XML_SetCharacterDataHandler(r->parser, on_text);
  XML_SetStartDoctypeDeclHandler(r->parser, on_doctype);
  enum XML_Status status = XML_Parse(r->parser, text, (int)size, 1);
  if (r->res != ncclSuccess) {
    return r->res;
  }
  if (status != XML_STATUS_OK) {
    enum XML_Error error = XML_GetErrorCode(r->parser);
    if (error == XML_ERROR_INVALID_TOKEN) {
      return tt_fail(ncclInvalidArgument, "%s:%d: column %d: not XML, or not UTF-8", r->xml->name, line_of(r),
                     (int)XML_GetCurrentColumnNumber(r->parser) + 1);
    }
    const char *why = error == XML_ERROR_NO_ELEMENTS ? "there is no element, or the text ends inside one" : XML_ErrorString(error);
    return tt_fail(ncclInvalidArgument, "%s:%d: %s", r->xml->name, line_of(r), why);
  }
  return ncclSuccess;
}

ncclResult_t tt_xml_parse(const char *name, const void *text, size_t size, tt_xml **out)
{
  if (size == 0) {
    return tt_fail(ncclInvalidArgument, "%s: empty", name);
  }
  if (size > TT_XML_MAX_BYTES) {
    return tt_fail(ncclInvalidArgument, "%s: longer than %d bytes", name, TT_XML_MAX_BYTES);
  }
  reader r = {.res = ncclSuccess};
  ncclResult_t res = tt_xml_empty(name, &r.xml);
  if (res != ncclSuccess) {
    return res;
  }
  r.parser = XML_ParserCreate("UTF-8");
  if (r.parser == NULL) {
    res = tt_fail(ncclSystemError, "%s: no memory for the XML parser", name);
    goto fail;
  }
  TT_TRY_GOTO(run_parser(&r, text, size), res);
  XML_ParserFree(r.parser);
  *out = r.xml;
  return ncclSuccess;
fail:
  if (r.parser != NULL) {
    XML_ParserFree(r.parser);
  }
  tt_xml_destroy(r.xml);
  return res;
}

// A device or a pipe may never end, or never begin.
static ncclResult_t open_file(const char *path, FILE **out, size_t *size)
{
  struct stat st;
  FILE *f = NULL;
  if (stat(path, &st) != 0) {
    return tt_fail(ncclInvalidArgument, "%s: cannot be read: %s", path, strerror(errno));
  }
  if (!S_ISREG(st.st_mode)) {
    return tt_fail(ncclInvalidArgument, "%s: not a regular file", path);
  }
  if (st.st_size > TT_XML_MAX_BYTES) {
    return tt_fail(ncclInvalidArgument, "%s: %lld bytes; at most %d are read", path, (long long)st.st_size, TT_XML_MAX_BYTES);
  }
  f = fopen(path, "rbe");
  if (f == NULL) {
    return tt_fail(ncclInvalidArgument, "%s: cannot be opened: %s", path, strerror(errno));
  }
  *out = f;
  *size = (size_t)st.st_size;
  return ncclSuccess;
}

ncclResult_t tt_xml_read(const char *path, tt_xml **out)
{
  FILE *f = NULL;
  char *text = NULL;
  size_t size = 0;
  ncclResult_t res;
  TT_TRY(open_file(path, &f, &size));
  text = tt_calloc(1, size + 1);
  if (text == NULL) {
    res = tt_fail(ncclSystemError, "%s: no memory for %zu bytes", path, size);
    goto fail;
  }
  size = fread(text, 1, size, f);
  if (ferror(f)) {
    res = tt_fail(ncclSystemError, "%s: cannot be read: %s", path, strerror(errno));
    goto fail;
  }
  res = tt_xml_parse(path, text, size, out);
fail:
  tt_free(text);
  fclose(f);
  return res;
}
