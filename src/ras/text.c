// text.c: see text.h.
#include "ras/text.h"

#include <string.h>

#include "base/text.h"
#include "base/util.h"

static bool text_make_room(ras_text *t, size_t more)
{
  if (t->size + more + 1 <= t->room) {
    return true;
  }
  size_t room = TT_MAX(2 * t->room, t->size + more + 256);
  char *data = tt_calloc(room, 1);
  if (data == NULL) {
    t->failed = true;
    return false;
  }
  if (t->size > 0) {
    memcpy(data, t->data, t->size);
  }
  tt_free(t->data);
  t->data = data;
  t->room = room;
  return true;
}

void ras_add(ras_text *t, const char *format, ...)
{
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = tt_vformat(NULL, 0, format, args);
  if (n >= 0 && text_make_room(t, (size_t)n)) {
    tt_vformat(t->data + t->size, (size_t)n + 1, format, again);
    t->size += (size_t)n;
  }
  va_end(again);
  va_end(args);
}

void ras_add_string(ras_text *t, const char *value)
{
  ras_add(t, "\"");
  for (const char *c = value; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\') {
      ras_add(t, "\\%c", *c);
    } else if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f) {
      ras_add(t, "\\u%04x", (unsigned char)*c); // bytes of other encodings as Latin-1
    } else {
      ras_add(t, "%c", *c);
    }
  }
  ras_add(t, "\"");
}

void ras_text_free(ras_text *t)
{
  tt_free(t->data);
  *t = (ras_text){.data = NULL};
}
