// draw_text.c: small writers that pictures, pages and data share.
#include <string.h>

#include "base/util.h"
#include "draw_priv.h"

const char *xp_bus_text(int64_t id, char *buf, size_t size)
{
  unsigned long long v = (unsigned long long)id;
  snprintf(buf, size, "%04llx:%02llx:%02llx.%llx", v >> 20, v >> 12 & 0xff, v >> 4 & 0xff, v & 0xf);
  return buf;
}

const char *xp_port_name(const xp_drawing *d, int node)
{
  return d->ports != NULL && d->ports[node] != NULL ? d->ports[node] : "";
}

// The value and length of a character's first byte.
static int lead(unsigned char c, unsigned *value)
{
  if (c < 0x80) {
    *value = c;
    return 1;
  }
  int n = c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 0;
  *value = n > 0 ? c & (0xffu >> (n + 1)) : 0;
  return n;
}

int xp_utf8(const char *s)
{
  unsigned value;
  int n = lead((unsigned char)s[0], &value);
  for (int i = 1; i < n; i++) {
    if (((unsigned char)s[i] & 0xc0) != 0x80) {
      return 0;
    }
    value = value << 6 | ((unsigned char)s[i] & 0x3f);
  }
  bool early = (n == 3 && value < 0x800) || (n == 4 && value < 0x10000);
  bool odd = (value < 0x20 && value != '\t' && value != '\n' && value != '\r') || (value >= 0xd800 && value < 0xe000) ||
             value > 0x10ffff || value == 0xfffe || value == 0xffff || value == 0x7f;
  return early || odd ? 0 : n;
}

static void escape_one(const char *s, int n, FILE *out)
{
  switch (n == 1 ? *s : 'x') {
  case '<': fputs("&lt;", out); return;
  case '>': fputs("&gt;", out); return;
  case '&': fputs("&amp;", out); return;
  case '"': fputs("&quot;", out); return;
  case '\'': fputs("&#39;", out); return;
  default: break;
  }
  if (n == 0) {
    fputs("\xef\xbf\xbd", out);
  } else {
    fwrite(s, 1, (size_t)n, out);
  }
}

void xp_escape(const char *text, size_t most, FILE *out)
{
  size_t count = 0;
  for (const char *s = text; *s != 0; count++) {
    int n = xp_utf8(s);
    if (count + 1 >= most && s[n > 0 ? n : 1] != 0) {
      fputs("\xe2\x80\xa6", out);
      return;
    }
    escape_one(s, n, out);
    s += n > 0 ? n : 1;
  }
}

ncclResult_t xp_written(FILE *out)
{
  return fflush(out) != 0 || ferror(out)
             ? tt_fail(ncclSystemError, "the drawing could not be written: disk full, or nobody reads it")
             : ncclSuccess;
}
