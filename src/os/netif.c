// netif.c: see netif.h.
#include "os/netif.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "base/util.h"

static void fill_netif(tt_netif *n, const struct ifaddrs *i)
{
  memset(n, 0, sizeof(*n));
  snprintf(n->name, sizeof(n->name), "%s", i->ifa_name);
  n->loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
  tt_addr_of_kernel(i->ifa_addr, &n->addr);
}

static bool usable(const struct ifaddrs *i)
{
  unsigned need = IFF_UP | IFF_RUNNING;
  return i->ifa_addr != NULL && (i->ifa_flags & need) == need &&
         (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
}

// Those that can be used, into `out` (NULL: nowhere). Returns how many.
static int fill_usable(tt_netif *out, const struct ifaddrs *all)
{
  int n = 0;
  for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
    if (usable(i) && out != NULL) {
      fill_netif(&out[n], i);
    }
    n += usable(i);
  }
  return n;
}

ncclResult_t tt_netif_list(tt_netif **out, int *count)
{
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all) != 0) {
    return tt_fail(ncclSystemError, "cannot list the network interfaces: %s", strerror(errno));
  }
  int n = fill_usable(NULL, all);
  tt_netif *list = tt_calloc((size_t)TT_MAX(n, 1), sizeof(*list));
  if (list != NULL) {
    (void)fill_usable(list, all);
  }
  freeifaddrs(all);
  if (list == NULL) {
    return tt_fail(ncclSystemError, "no memory for %d addresses of network interfaces", n);
  }
  *out = list;
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
  if (n->loopback && !n->way_out) {
    return 3;
  }
  return n->way_out || starts(n->name, "ib") ? 0 : starts(n->name, "docker") ? 2 : starts(n->name, "virbr") ? 4 : 1;
}

static int address_class(const tt_netif *n)
{
  return n->addr.family == AF_INET ? 0 : tt_addr_is_link_local(&n->addr) ? 2 : 1;
}

int tt_netif_family(const char *text)
{
  bool four = text != NULL && strcmp(text, "AF_INET") == 0, six = text != NULL && strcmp(text, "AF_INET6") == 0;
  return four ? AF_INET : six ? AF_INET6 : AF_UNSPEC;
}

static bool family_wanted(const tt_netif *n, const char *family)
{
  int wanted = tt_netif_family(family);
  return wanted == AF_UNSPEC || wanted == n->addr.family;
}

static bool has_name(const tt_netif *list, int n, const char *name)
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

// Lower is better. All addresses of one interface have the same, but for one with way_out.
static int class_of(const tt_netif *n, const char *spec)
{
  return named(spec) ? tt_netif_match(n->name, spec) : default_class(n);
}

// By class, then what the default route sends from, then by kind of address.
static bool before(const tt_netif *a, const tt_netif *b, const char *spec)
{
  int of_a = class_of(a, spec), of_b = class_of(b, spec);
  if (of_a != of_b) {
    return of_a < of_b;
  }
  return a->way_out != b->way_out ? a->way_out : address_class(a) < address_class(b);
}

// Moves list[from] to `to` <= from; what was between makes room.
static void move_up(tt_netif *list, int to, int from)
{
  tt_netif item = list[from];
  memmove(&list[to + 1], &list[to], (size_t)(from - to) * sizeof(list[0]));
  list[to] = item;
}

// Keeps what spec and family select, sorted; equal ones stay in the kernel's order. Returns how many.
static int sort_selected(tt_netif *list, int count, const char *spec, const char *family)
{
  int n = 0;
  for (int i = 0; i < count; i++) {
    if (tt_netif_match(list[i].name, spec) >= 0 && family_wanted(&list[i], family)) {
      int at = n;
      list[n] = list[i];
      while (at > 0 && before(&list[n], &list[at - 1], spec)) {
        at--;
      }
      move_up(list, at, n++);
    }
  }
  return n;
}

int tt_netif_select(tt_netif *list, int count, const char *spec, const char *family)
{
  int n = sort_selected(list, count, spec, family), kept = 0, best = n > 0 ? class_of(&list[0], spec) : 0;
  for (int i = 0; i < n && (named(spec) || class_of(&list[i], spec) == best); i++) {
    if (!has_name(list, kept, list[i].name)) {
      list[kept++] = list[i];
    }
  }
  return kept;
}

// 0: first address of an interface; 1: a further one; 2: link-local, which means nothing to another machine.
static int netif_turn(const tt_netif *list, int i)
{
  return address_class(&list[i]) == 2 ? 2 : has_name(list, i, list[i].name) ? 1 : 0;
}

int tt_netif_order(tt_netif *list, int count, const char *spec, const char *family)
{
  int n = sort_selected(list, count, spec, family), worst = n > 0 ? TT_MAX(class_of(&list[0], spec), 1) : 0;
  int ends[3] = {0}; // of what has each turn; together the part of the list that is done
  for (int i = 0; i < n && (named(spec) || class_of(&list[i], spec) <= worst); i++) {
    int turn = netif_turn(list, i);
    move_up(list, ends[turn], i);
    for (int later = turn; later < 3; later++) {
      ends[later]++;
    }
  }
  return ends[2];
}

// "lo, eth0", for messages.
static void names_text(const tt_netif *list, int n, char *buf, size_t room)
{
  buf[0] = '\0';
  for (int i = 0; i < n; i++) {
    if (!has_name(list, i, list[i].name)) {
      tt_list_add(buf, room, "%s", list[i].name);
    }
  }
}

static ncclResult_t check_family(const char *family)
{
  if (family == NULL || *family == '\0' || tt_netif_family(family) != AF_UNSPEC) {
    return ncclSuccess;
  }
  return tt_fail(ncclInvalidUsage, "NCCL_SOCKET_FAMILY=%s is not one of AF_INET, AF_INET6; unset, both are used",
                 family);
}

static bool has_family(const tt_netif *list, int n, int family)
{
  for (int i = 0; i < n; i++) {
    if (list[i].addr.family == family) {
      return true;
    }
  }
  return false;
}

// Marks the addresses from which the machine sends by its default routes: to networks that are set aside for examples
// (RFC 5737, RFC 3849), so that no other route leads there.
static void mark_way_out(tt_netif *list, int count)
{
  static const tt_addr far[] = {{.family = AF_INET, .port = 9, .ip = {192, 0, 2, 1}},
                                {.family = AF_INET6, .port = 9, .ip = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}}};
  for (size_t f = 0; f < TT_COUNT(far); f++) {
    tt_addr from;
    if (!has_family(list, count, far[f].family) || tt_addr_source(&far[f], &from) != 0) {
      continue;
    }
    for (int i = 0; i < count; i++) {
      list[i].way_out |= tt_addr_same_ip(&list[i].addr, &from);
    }
  }
}

static int order_by_routes(tt_netif *list, int count, const char *spec, const char *family)
{
  mark_way_out(list, count);
  return tt_netif_order(list, count, spec, family);
}

static ncclResult_t none_fits(const tt_params *p, const char *names)
{
  return tt_fail(ncclSystemError,
                 "no network interface for NCCL_SOCKET_IFNAME=%s NCCL_SOCKET_FAMILY=%s; interfaces that are up: %s",
                 p->socket_ifname != NULL ? p->socket_ifname : "(unset)",
                 p->socket_family != NULL ? p->socket_family : "(unset)", names[0] == '\0' ? "(none)" : names);
}

typedef int (*netif_choice)(tt_netif *list, int count, const char *spec, const char *family);

// What `choose` leaves of the machine's addresses; at least one.
static ncclResult_t choose_netifs(tt_netif *all, int *count, netif_choice choose)
{
  const tt_params *p = tt_params_get();
  char names[256];
  names_text(all, *count, names, sizeof(names));
  int n = choose(all, *count, p->socket_ifname, p->socket_family);
  if (n == 0) {
    return none_fits(p, names);
  }
  *count = n;
  return ncclSuccess;
}

// The machine's addresses and what `choose` leaves of them; at least one. Free *out with tt_free.
static ncclResult_t find_netifs(tt_netif **out, int *count, netif_choice choose)
{
  tt_netif *all = NULL;
  int n = 0;
  TT_TRY(check_family(tt_params_get()->socket_family));
  TT_TRY(tt_netif_list(&all, &n));
  ncclResult_t res = choose_netifs(all, &n, choose);
  if (res != ncclSuccess) {
    tt_free(all);
    return res;
  }
  *out = all;
  *count = n;
  return ncclSuccess;
}

ncclResult_t tt_netif_find(tt_netif *out, int max, int *count)
{
  tt_netif *all = NULL;
  int n = 0;
  TT_TRY(find_netifs(&all, &n, tt_netif_select));
  n = TT_MIN(n, max);
  memcpy(out, all, (size_t)n * sizeof(out[0]));
  tt_free(all);
  *count = n;
  return ncclSuccess;
}

ncclResult_t tt_netif_reach(tt_netif **out, int *count)
{
  return find_netifs(out, count, order_by_routes);
}

ncclResult_t tt_netif_best(tt_addr *out)
{
  tt_netif *all = NULL;
  tt_addr best = {.family = 0};
  int n = 0;
  TT_TRY(tt_netif_list(&all, &n));
  ncclResult_t res = n > 0 ? check_family(tt_params_get()->socket_family) : ncclSuccess;
  if (res == ncclSuccess && n > 0) {
    res = choose_netifs(all, &n, order_by_routes);
    best = all[0].addr;
  }
  tt_free(all);
  if (res == ncclSuccess) {
    *out = best;
  }
  return res;
}

void tt_netif_pick(const tt_netif *list, int count, const char *first, tt_addrs *out)
{
  for (int others = first == NULL; others <= 1; others++) {
    for (int i = 0; i < count; i++) {
      if ((first == NULL || strcmp(list[i].name, first) != 0) == (others != 0)) {
        tt_addrs_add(out, &list[i].addr);
      }
    }
  }
}

// "10.0.0.1 on eth0, ...": the addresses that are not in `kept`.
static void left_out_text(const tt_netif *list, int count, const tt_addrs *kept, char *buf, size_t room)
{
  char at[TT_ADDR_TEXT];
  buf[0] = '\0';
  for (int i = 0; i < count; i++) {
    if (tt_addrs_find(kept, &list[i].addr, false) == 0) {
      tt_list_add(buf, room, "%s on %s", tt_addr_ip_text(&list[i].addr, at), list[i].name);
    }
  }
}

ncclResult_t tt_netif_addrs(const tt_addr *first, tt_addrs *out)
{
  tt_netif *all = NULL;
  tt_addrs list = {.n = 0};
  int n = 0;
  TT_TRY(tt_netif_reach(&all, &n));
  if (first != NULL) {
    tt_addrs_add(&list, first);
  }
  tt_netif_pick(all, n, NULL, &list);
  tt_free(all);
  *out = list;
  return ncclSuccess;
}

void tt_netif_tell_left_out(const tt_addrs *listed)
{
  tt_netif *all = NULL;
  char text[400];
  int n = 0;
  if (listed->more == 0 || !tt_log_on(TT_LOG_INFO, TT_INIT | TT_BOOTSTRAP) || tt_netif_reach(&all, &n) != ncclSuccess) {
    return;
  }
  left_out_text(all, n, listed, text, sizeof(text));
  tt_info(TT_INIT | TT_BOOTSTRAP,
          "this machine has %u addresses that ranks may use, and other ranks get %u of them. Left out: %s. "
          "NCCL_SOCKET_IFNAME chooses the interfaces",
          listed->n + listed->more, listed->n, text);
  tt_free(all);
}

const char *tt_netif_name(const tt_addr *addr, char name[16])
{
  tt_netif *all = NULL;
  int n = 0;
  snprintf(name, 16, "?");
  if (tt_netif_list(&all, &n) != ncclSuccess) {
    return name;
  }
  for (int i = 0; i < n; i++) {
    if (tt_addr_same_ip(&all[i].addr, addr)) {
      memcpy(name, all[i].name, sizeof(all[i].name));
      break;
    }
  }
  tt_free(all);
  return name;
}
