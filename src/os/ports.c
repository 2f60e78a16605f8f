// ports.c: see ports.h.
#include "os/ports.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "os/folder.h"
#include "os/random.h"

enum { LAST_PORT = 65535, SETTING_MAX = 2048 };

// Reads a port at *text and goes on behind it. False: there is none.
static bool read_port(const char **text, uint32_t *port)
{
  char *end;
  unsigned long n = strtoul(*text, &end, 10);
  bool good = end != *text && n <= LAST_PORT;
  *text = end;
  *port = (uint32_t)n;
  return good;
}

// "32768	60999".
static bool read_range(const char *text, tt_ports *p)
{
  uint32_t last;
  if (!read_port(&text, &p->first) || !read_port(&text, &last) || p->first < 1 || last < p->first) {
    return false;
  }
  p->count = last - p->first + 1;
  return true;
}

// "8080,30000-30010", or nothing.
static bool read_gaps(const char *text, tt_ports *p)
{
  while (*text != '\0' && *text != '\n') {
    uint32_t first, last;
    if (p->ngaps == TT_PORT_GAPS || !read_port(&text, &first)) {
      return false;
    }
    last = first;
    if (*text == '-') {
      text++;
      if (!read_port(&text, &last)) {
        return false;
      }
    }
    p->gaps[p->ngaps].first = first;
    p->gaps[p->ngaps++].last = last;
    text += *text == ',';
  }
  return true;
}

// The whole text of a setting, or NULL.
static const char *port_setting(const char *path, char buf[SETTING_MAX])
{
  long n = tt_folder_read(AT_FDCWD, path, buf, SETTING_MAX);
  return n >= 0 && n < SETTING_MAX - 1 ? buf : NULL;
}

void tt_ports_begin(tt_ports *p, const char *range, const char *reserved)
{
  char buf[2][SETTING_MAX];
  memset(p, 0, sizeof(*p));
  range = range != NULL ? range : port_setting("/proc/sys/net/ipv4/ip_local_port_range", buf[0]);
  reserved = reserved != NULL ? reserved : port_setting("/proc/sys/net/ipv4/ip_local_reserved_ports", buf[1]);
  if (range == NULL || reserved == NULL || !read_range(range, p) || !read_gaps(reserved, p)) {
    return;
  }
  tt_random(&p->at, sizeof(p->at));
  p->at %= p->count;
  p->left = p->count;
}

static bool is_reserved(const tt_ports *p, uint32_t port)
{
  for (int i = 0; i < p->ngaps; i++) {
    if (port >= p->gaps[i].first && port <= p->gaps[i].last) {
      return true;
    }
  }
  return false;
}

uint16_t tt_ports_next(tt_ports *p)
{
  while (p->left > 0) {
    uint32_t port = p->first + p->at;
    p->at = (p->at + 1) % p->count;
    p->left--;
    if (!is_reserved(p, port)) {
      return (uint16_t)port;
    }
  }
  return 0;
}
