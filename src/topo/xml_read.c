// xml_read.c: text into tree, by expat.
#include <errno.h>
#include <expat.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "topo/xml_priv.h"

typedef struct xml_reader {
  tt_xml *xml;
  XML_Parser parser;
  tt_xml_node *at;  // the element that is open
  ncclResult_t res; // what was wrong; said already
} xml_reader;

static int xml_line(const xml_reader *r)
{
  return (int)XML_GetCurrentLineNumber(r->parser);
}

static void xml_give_up(xml_reader *r, ncclResult_t res)
{
  r->res = res;
  XML_StopParser(r->parser, XML_FALSE);
}

static ncclResult_t xml_add_element(xml_reader *r, const char *tag, const char **attrs)
{
  tt_xml_node *node = NULL;
  if (r->at != NULL && r->at->depth >= TT_XML_MAX_DEPTH) {
    return tt_fail(ncclInvalidArgument, "%s:%d: <%.64s>: elements inside elements more than %d deep", r->xml->name,
                   xml_line(r), tag, TT_XML_MAX_DEPTH);
  }
  if (strlen(tag) > TT_XML_MAX_VALUE) {
    return tt_fail(ncclInvalidArgument, "%s:%d: an element's name is longer than %d bytes", r->xml->name, xml_line(r),
                   TT_XML_MAX_VALUE);
  }
  TT_TRY(tt_xml_add(r->xml, r->at, tag, &node));
  node->line = xml_line(r);
  if (r->at == NULL) {
    r->xml->root = node;
  }
  for (int i = 0; attrs[i] != NULL; i += 2) {
    TT_TRY(tt_xml_set(r->xml, node, attrs[i], attrs[i + 1]));
  }
  r->at = node;
  return ncclSuccess;
}

static void XMLCALL xml_on_open(void *arg, const char *tag, const char **attrs)
{
  xml_reader *r = arg;
  ncclResult_t res = r->res == ncclSuccess ? xml_add_element(r, tag, attrs) : ncclSuccess;
  if (res != ncclSuccess) {
    xml_give_up(r, res);
  }
}

static void XMLCALL xml_on_close(void *arg, const char *tag)
{
  (void)tag;
  xml_reader *r = arg;
  if (r->res == ncclSuccess) {
    r->at = r->at->parent;
  }
}

static void XMLCALL xml_on_text(void *arg, const char *text, int size)
{
  xml_reader *r = arg;
  for (int i = 0; i < size && r->xml->ignored_text == 0; i++) {
    if (strchr(" \t\r\n", text[i]) == NULL) {
      r->xml->ignored_text = xml_line(r);
    }
  }
}

static void XMLCALL xml_on_doctype(void *arg, const char *name, const char *sysid, const char *pubid, int internal)
{
  (void)sysid, (void)pubid, (void)internal;
  xml_reader *r = arg;
  xml_give_up(r, tt_fail(ncclInvalidArgument,
                         "%s:%d: <!DOCTYPE %.64s>: document types and entities are not read; leave the declaration out",
                         r->xml->name, xml_line(r), name));
}

static ncclResult_t xml_run_parser(xml_reader *r, const char *text, size_t size)
{
  XML_SetUserData(r->parser, r);
  XML_SetElementHandler(r->parser, xml_on_open, xml_on_close);
  XML_SetCharacterDataHandler(r->parser, xml_on_text);
  XML_SetStartDoctypeDeclHandler(r->parser, xml_on_doctype);
  enum XML_Status status = XML_Parse(r->parser, text, (int)size, 1);
  if (r->res != ncclSuccess) {
    return r->res;
  }
  if (status != XML_STATUS_OK) {
    enum XML_Error error = XML_GetErrorCode(r->parser);
    if (error == XML_ERROR_INVALID_TOKEN) {
      return tt_fail(ncclInvalidArgument, "%s:%d: column %d: not XML, or not UTF-8", r->xml->name, xml_line(r),
                     (int)XML_GetCurrentColumnNumber(r->parser) + 1);
    }
    const char *why =
        error == XML_ERROR_NO_ELEMENTS ? "there is no element, or the text ends inside one" : XML_ErrorString(error);
    return tt_fail(ncclInvalidArgument, "%s:%d: %s", r->xml->name, xml_line(r), why);
  }
  return ncclSuccess;
}

ncclResult_t tt_xml_parse(const char *name, const void *text, size_t size, tt_xml **out)
{
  xml_reader r = {.res = ncclSuccess};
  if (size == 0) {
    return tt_fail(ncclInvalidArgument, "%s: empty", name);
  }
  if (size > TT_XML_MAX_BYTES) {
    return tt_fail(ncclInvalidArgument, "%s: longer than %d bytes", name, TT_XML_MAX_BYTES);
  }
  TT_TRY(tt_xml_empty(name, &r.xml));
  r.parser = XML_ParserCreate("UTF-8");
  ncclResult_t res = r.parser != NULL ? xml_run_parser(&r, text, size)
                                      : tt_fail(ncclSystemError, "%s: no memory for the XML parser", name);
  XML_ParserFree(r.parser); // may be NULL
  if (res != ncclSuccess) {
    tt_xml_destroy(r.xml);
    return res;
  }
  *out = r.xml;
  return ncclSuccess;
}

// A device or a pipe may never end, or never begin.
static ncclResult_t xml_open_file(const char *path, FILE **out, size_t *size)
{
  struct stat st;
  if (stat(path, &st) != 0) {
    return tt_fail(ncclInvalidArgument, "%s: cannot be read: %s", path, strerror(errno));
  }
  if (!S_ISREG(st.st_mode)) {
    return tt_fail(ncclInvalidArgument, "%s: not a regular file", path);
  }
  if (st.st_size > TT_XML_MAX_BYTES) {
    return tt_fail(ncclInvalidArgument, "%s: %lld bytes; at most %d are read", path, (long long)st.st_size,
                   TT_XML_MAX_BYTES);
  }
  *out = fopen(path, "rbe");
  *size = (size_t)st.st_size;
  return *out != NULL ? ncclSuccess : tt_fail(ncclInvalidArgument, "%s: cannot be opened: %s", path, strerror(errno));
}

ncclResult_t tt_xml_read(const char *path, tt_xml **out)
{
  FILE *f = NULL;
  size_t size = 0;
  ncclResult_t res;
  TT_TRY(xml_open_file(path, &f, &size));
  char *text = tt_calloc(1, size + 1);
  if (text == NULL) {
    res = tt_fail(ncclSystemError, "%s: no memory for %zu bytes", path, size);
  } else {
    size = fread(text, 1, size, f);
    res = ferror(f) ? tt_fail(ncclSystemError, "%s: cannot be read: %s", path, strerror(errno))
                    : tt_xml_parse(path, text, size, out);
  }
  tt_free(text);
  fclose(f);
  return res;
}
