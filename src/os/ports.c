// ports.c: see ports.h.
#include "os/ports.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "os/folder.h"
#include "os/random.h"

enum { LAST_PORT = 65535, SETTING_MAX = 2048 };

// "32768	60999".
static bool read_range(const char *text, tt_ports *p)
{
  uint32_t last;
  if (sscanf(text, "%" SCNu32 " %" SCNu32, &p->first, &last) != 2 || p->first < 1 || last < p->first ||
      last > LAST_PORT) {
    return false;
  }
  p->count = last - p->first + 1;
  return true;
}

// "8080,30000-30010", or nothing.
static bool read_gaps(const char *text, tt_ports *p)
{
  long first, last;
  while (p->ngaps < TT_PORT_GAPS && tt_file_range(&text, &first, &last)) {
    p->gaps[p->ngaps].first = (uint32_t)first;
    p->gaps[p->ngaps++].last = (uint32_t)last;
  }
  return *text == '\0' || *text == '\n';
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
