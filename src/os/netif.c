// netif.c: see netif.h.
#include "os/netif.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "base/result.h"
#include "base/util.h"

static void fill(tt_netif *n, const struct ifaddrs *i)
{
  memset(n, 0, sizeof(*n));
  snprintf(n->name, sizeof(n->name), "%s", i->ifa_name);
  n->loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
  n->addr.family = i->ifa_addr->sa_family;
  if (n->addr.family == AF_INET) {
    memcpy(n->addr.ip, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, 4);
    return;
  }
  const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)i->ifa_addr;
  memcpy(n->addr.ip, &v6->sin6_addr, 16);
  n->addr.scope = v6->sin6_scope_id;
}

static bool usable(const struct ifaddrs *i)
{
  unsigned need = IFF_UP | IFF_RUNNING;
  return i->ifa_addr != NULL && (i->ifa_flags & need) == need && (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
}

ncclResult_t tt_netif_list(tt_netif *out, int max, int *count)
{
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all) != 0) {
    return tt_fail(ncclSystemError, "cannot list the network interfaces: %s", strerror(errno));
  }
  int n = 0;
  for (const struct ifaddrs *i = all; i != NULL && n < max; i = i->ifa_next) {
    if (usable(i)) {
      fill(&out[n++], i);
    }
  }
  freeifaddrs(all);
  *count = n;
  return ncclSuccess;
}

// One entry of a list against a name; ":port" and what follows, which NCCL allows after a name, is not looked at.
static bool entry_matches(const char *name, const char *entry, size_t len, bool exact)
{
  const char *colon = memchr(entry, ':', len);
  len = colon != NULL ? (size_t)(colon - entry) : len;
  return len > 0 && strncmp(name, entry, len) == 0 && (!exact || name[len] == '\0');
}

int tt_netif_match(const char *name, const char *spec)
{
  if (spec == NULL) {
    return 0;
  }
  bool exclude = *spec == '^';
  spec += exclude;
  bool exact = *spec == '=';
  spec += exact;
  if (*spec == '\0') {
    return 0;
  }
  for (int at = 0;; at++) {
    size_t len = strcspn(spec, ",");
    if (entry_matches(name, spec, len, exact)) {
      return exclude ? -1 : at;
    }
    spec += len;
    if (*spec == '\0') {
      return exclude ? 0 : -1;
    }
    spec++;
  }
}

static bool starts(const char *name, const char *prefix)
{
  return strncmp(name, prefix, strlen(prefix)) == 0;
}

// The order without a list of the user: bridges that lead only into this machine's containers and guests come late.
static int default_class(const tt_netif *n)
{
  if (n->loopback) {
    return 3;
  }
  return starts(n->name, "ib") ? 0 : starts(n->name, "docker") ? 2 : starts(n->name, "virbr") ? 4 : 1;
}

static int address_class(const tt_netif *n)
{
  bool link_local = n->addr.family == AF_INET6 && n->addr.ip[0] == 0xfe && (n->addr.ip[1] & 0xc0) == 0x80;
  return n->addr.family == AF_INET ? 0 : link_local ? 2 : 1;
}

static bool family_wanted(const tt_netif *n, const char *family)
{
  if (family != NULL && strcmp(family, "AF_INET") == 0) {
    return n->addr.family == AF_INET;
  }
  return family == NULL || strcmp(family, "AF_INET6") != 0 || n->addr.family == AF_INET6;
}

// Sorts by class, then by kind of address; equal ones stay in the kernel's order.
static void insert(tt_netif *list, int *class_of, int n, tt_netif item, int item_class)
{
  int at = n;
  while (at > 0 &&
         (class_of[at - 1] > item_class || (class_of[at - 1] == item_class && address_class(&list[at - 1]) > address_class(&item)))) {
    list[at] = list[at - 1];
    class_of[at] = class_of[at - 1];
    at--;
  }
  list[at] = item;
  class_of[at] = item_class;
}

static bool seen(const tt_netif *list, int n, const char *name)
{
  for (int i = 0; i < n; i++) {
    if (strcmp(list[i].name, name) == 0) {
      return true;
    }
  }
  return false;
}

static bool named(const char *spec)
{
  return spec != NULL && *spec != '\0' && *spec != '^';
}

// What spec and family select, sorted, with the class of each. Returns how many.
static int sort_selected(tt_netif *list, int *class_of, int count, const char *spec, const char *family)
{
  int n = 0;
  for (int i = 0; i < TT_MIN(count, TT_NETIF_MAX); i++) {
    int position = tt_netif_match(list[i].name, spec);
    if (position >= 0 && family_wanted(&list[i], family)) {
      insert(list, class_of, n, list[i], named(spec) ? position : default_class(&list[i]));
      n++;
    }
  }
  return n;
}

int tt_netif_select(tt_netif *list, int count, const char *spec, const char *family)
{
  int class_of[TT_NETIF_MAX], n = sort_selected(list, class_of, count, spec, family), kept = 0;
  for (int i = 0; i < n && (named(spec) || class_of[i] == class_of[0]); i++) {
    if (!seen(list, kept, list[i].name)) {
      list[kept++] = list[i];
    }
  }
  return kept;
}

// 0: first address of an interface; 1: a further one; 2: link-local, which means nothing to another machine.
static int turn_of(const tt_netif *list, int i)
{
  return address_class(&list[i]) == 2 ? 2 : seen(list, i, list[i].name) ? 1 : 0;
}

int tt_netif_order(tt_netif *list, int count, const char *spec, const char *family)
{
  tt_netif sorted[TT_NETIF_MAX];
  int class_of[TT_NETIF_MAX], n = TT_MIN(count, TT_NETIF_MAX), kept = 0;
  memcpy(sorted, list, (size_t)n * sizeof(sorted[0]));
  n = sort_selected(sorted, class_of, n, spec, family);
  for (int turn = 0; turn < 3; turn++) {
    for (int i = 0; i < n; i++) {
      bool best = named(spec) || class_of[i] <= TT_MAX(class_of[0], 1);
      if (best && turn_of(sorted, i) == turn) {
        list[kept++] = sorted[i];
      }
    }
  }
  return kept;
}

// "lo, eth0", for messages.
static void names_text(const tt_netif *list, int n, char *buf, size_t room)
{
  size_t used = 0;
  buf[0] = '\0';
  for (int i = 0; i < n && used < room; i++) {
    if (!seen(list, i, list[i].name)) {
      used += (size_t)snprintf(buf + used, room - used, "%s%s", used > 0 ? ", " : "", list[i].name);
    }
  }
}

// The machine's addresses and what `choose` leaves of them; at least one.
static ncclResult_t find(tt_netif all[TT_NETIF_MAX], int *count, int (*choose)(tt_netif *, int, const char *, const char *))
{
  const tt_params *p = tt_params_get();
  char names[256];
  int n = 0;
  TT_TRY(tt_netif_list(all, TT_NETIF_MAX, &n));
  names_text(all, n, names, sizeof(names));
  n = choose(all, n, p->socket_ifname, p->socket_family);
  if (n == 0) {
    return tt_fail(ncclSystemError, "no network interface for NCCL_SOCKET_IFNAME=%s NCCL_SOCKET_FAMILY=%s; interfaces that are up: %s",
                   p->socket_ifname != NULL ? p->socket_ifname : "(unset)", p->socket_family != NULL ? p->socket_family : "(unset)",
                   names[0] == '\0' ? "(none)" : names);
  }
  *count = n;
  return ncclSuccess;
}

ncclResult_t tt_netif_find(tt_netif *out, int max, int *count)
{
  tt_netif all[TT_NETIF_MAX];
  int n = 0;
  TT_TRY(find(all, &n, tt_netif_select));
  n = TT_MIN(n, max);
  memcpy(out, all, (size_t)n * sizeof(out[0]));
  *count = n;
  return ncclSuccess;
}

ncclResult_t tt_netif_addrs(tt_addrs *out)
{
  tt_netif all[TT_NETIF_MAX];
  tt_addrs list = {.n = 0};
  int n = 0;
  TT_TRY(find(all, &n, tt_netif_order));
  for (int i = 0; i < n; i++) {
    tt_addrs_add(&list, &all[i].addr);
  }
  *out = list;
  return ncclSuccess;
}

const char *tt_netif_name(const tt_addr *addr, char name[16])
{
  tt_netif all[TT_NETIF_MAX];
  int n = 0;
  snprintf(name, 16, "?");
  if (tt_netif_list(all, TT_NETIF_MAX, &n) != ncclSuccess) {
    return name;
  }
  for (int i = 0; i < n; i++) {
    if (tt_addr_same_ip(&all[i].addr, addr)) {
      memcpy(name, all[i].name, sizeof(all[i].name));
      break;
    }
  }
  return name;
}
