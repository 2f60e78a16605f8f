// lint_machine.c: a machine as a whole: what is there twice, NVLinks that do not fit together, CPUs.
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "lint_priv.h"
#include "topo/system.h"

enum {
  MASK_WORDS = 512,
  MOST_LINKS = 128, // elements of one GPU; those of more are not compared
};

static const xp_reason twice_fatal = {XP_ERROR, "the file does not load: nobody knows which one is meant",
                                      "give each its own"};
static const xp_reason twice_odd = {XP_WARNING, "graphs and links name them by it, and reach only one",
                                    "give each its own"};
static const xp_reason twice_left_out = {XP_WARNING, "the second port of that number is left out",
                                         "number the ports from 0, each once"};
static const xp_reason twice_dev = {XP_WARNING,
                                    "ranks find their place by it, graphs name GPUs by it: both reach only the first",
                                    "number the GPUs of a host from 0, each once"};
static const xp_reason holes = {XP_NOTE, "ranks of one communicator are numbered from 0 without holes",
                                "renumber them, or add the ones that are missing"};
static const xp_reason mixed = {XP_NOTE,
                                "the slowest generation decides speeds and algorithms for all (NVLS, protocols)",
                                "make sure that it is meant"};
static const xp_reason odd_sm = {XP_WARNING, "bandwidths of NVLink are those of the generation",
                                 "write compute capability times 10: 80, 90, 100"};
static const xp_reason one_sided = {XP_WARNING,
                                    "one of the two numbers is wrong: links may be down, or the file was edited",
                                    "compare with `nvidia-smi nvlink -s` on the machine"};
static const xp_reason nowhere = {XP_WARNING, "links to what is not in the file are left out",
                                  "correct the target, or tclass where an NVSwitch is meant"};
static const xp_reason itself = {XP_WARNING, "a link to the GPU itself is left out", "correct the target"};
static const xp_reason target_twice = {XP_NOTE, "both counts are added", "write one element with the sum"};
static const xp_reason too_many = {XP_WARNING, "more than this generation has: bandwidth would be too great",
                                   "correct count"};
static const xp_reason fewer = {XP_WARNING, "some of its links are probably down; all GPUs are as slow as the slowest",
                                "look at `nvidia-smi nvlink -s` on the machine"};
static const xp_reason odd_class = {XP_WARNING, "tclass says whether the other end is a GPU or a switch",
                                    "write the class of the device at the target"};
static const xp_reason numa_unknown = {
    XP_WARNING, "-1 is what the system says of a machine without NUMA; beside others something was not seen",
    "look for devices whose numa_node in sysfs is -1"};
static const xp_reason masks = {XP_WARNING,
                                "threads of ranks on both are put on the same cores; NUMA nodes do not share cores",
                                "take the masks of /sys/devices/system/node/node*/cpumap"};
static const xp_reason mask_bad = {XP_WARNING, "threads are not put on this NUMA node",
                                   "write words of 8 hexadecimal digits with commas between"};
static const xp_reason no_gpu = {XP_WARNING, "ranks sit on GPUs: nothing can be searched",
                                 "add GPUs with rank, or merge the file with what is detected"};
static const xp_reason no_net = {XP_NOTE, "channels stay in this machine",
                                 "add <net> elements where there are several machines"};

// ---- Elements and the host they are on ----

typedef struct item {
  const tt_xml_node *x, *cpu;
  int64_t bus; // of the PCI element it is or stands in; -1
  uint64_t key;
  int order;
} item;

typedef struct items {
  item *list;
  int count;
} items;

static uint64_t text_key(const char *text, uint64_t seed)
{
  return tt_hash(text, strlen(text), seed);
}

static uint64_t host_of(const item *i)
{
  const char *hash = i->cpu != NULL ? tt_xml_get(i->cpu, "host_hash") : NULL;
  return hash != NULL ? strtoull(hash, NULL, 16) : 0;
}

// All elements of a name, with the CPU and bus id above them.
static items collect(const tt_xml *xml, const char *tag)
{
  items all = {tt_calloc((size_t)xml->nnodes + 1, sizeof(item)), 0};
  for (const tt_xml_node *x = xml->root; x != NULL && all.list != NULL; x = tt_xml_walk(xml->root, x)) {
    if (strcmp(x->tag, tag) != 0) {
      continue;
    }
    item i = {.x = x, .bus = -1, .order = all.count};
    for (const tt_xml_node *up = x; up != NULL; up = up->parent) {
      const char *bus = strcmp(up->tag, "pci") == 0 && i.bus < 0 ? tt_xml_get(up, "busid") : NULL;
      if (bus != NULL && !tt_bus_id(bus, &i.bus)) {
        i.bus = -1;
      }
      i.cpu = strcmp(up->tag, "cpu") == 0 ? up : i.cpu;
    }
    all.list[all.count++] = i;
  }
  return all;
}

static int compare_items(const void *a, const void *b)
{
  const item *x = a, *y = b;
  return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->order - y->order;
}

// ---- What is there twice ----

// The key of an attribute: bus ids and numbers by value, other texts as they are. 0: not there.
static uint64_t key_of(const item *i, const char *attr, bool by_host)
{
  const char *text = tt_xml_get(i->x, attr);
  uint64_t seed = by_host ? host_of(i) + 1 : 1;
  if (text == NULL) {
    return 0;
  }
  int64_t bus;
  if (strcmp(attr, "busid") == 0 && tt_bus_id(text, &bus)) {
    return tt_hash(&bus, sizeof(bus), seed);
  }
  long long number = xp_number(i->x, attr, INT64_MIN);
  return strcmp(attr, "name") != 0 && number != INT64_MIN ? tt_hash(&number, sizeof(number), seed)
                                                          : text_key(text, seed);
}

static bool holds(const tt_xml_node *pci, const char *tag)
{
  return tt_xml_child(pci, tag) != NULL;
}

static void find_twice(xp_findings *f, items all, const char *attr, bool by_host, const xp_reason *reason)
{
  for (int i = 0; i < all.count; i++) {
    all.list[i].key = key_of(&all.list[i], attr, by_host);
  }
  qsort(all.list, (size_t)all.count, sizeof(item), compare_items);
  for (int i = 1; i < all.count; i++) {
    const item *a = &all.list[i - 1], *b = &all.list[i];
    // Ranks on one GPU.
    bool shared = strcmp(attr, "dev") == 0 && a->x->parent == b->x->parent && strcmp(a->x->tag, "gpu") == 0;
    if (b->key == 0 || a->key != b->key || shared) {
      continue;
    }
    bool pci = strcmp(attr, "busid") == 0;
    bool fatal = pci && ((holds(a->x, "gpu") && holds(b->x, "gpu")) || (holds(a->x, "nic") && holds(b->x, "nic")));
    xp_find(f, b->x, fatal ? &twice_fatal : reason, "%s=\"%.64s\" is there already at line %d", attr,
            tt_xml_get(b->x, attr), a->x->line);
  }
}

static void find_all_twice(xp_findings *f, const tt_xml *xml)
{
  static const struct {
    const char *tag, *attr;
    bool by_host;
    const xp_reason *reason;
  } checks[] = {
      {"pci", "busid", true, &twice_odd}, {"cpu", "numaid", true, &twice_fatal}, {"gpu", "rank", false, &twice_fatal},
      {"gpu", "dev", true, &twice_dev},   {"net", "dev", true, &twice_left_out}, {"net", "name", true, &twice_odd},
  };
  for (size_t i = 0; i < TT_COUNT(checks); i++) {
    items all = collect(xml, checks[i].tag);
    if (all.list != NULL) {
      find_twice(f, all, checks[i].attr, checks[i].by_host, checks[i].reason);
    }
    f->no_memory |= all.list == NULL;
    tt_free(all.list);
  }
}

// ---- GPUs ----

static int compare_numbers(const void *a, const void *b)
{
  long long x = *(const long long *)a, y = *(const long long *)b;
  return (x > y) - (x < y);
}

static void check_ranks(xp_findings *f, const tt_xml *xml, items gpus)
{
  long long *ranks = tt_calloc((size_t)gpus.count + 1, sizeof(*ranks));
  int n = 0;
  for (int i = 0; i < gpus.count && ranks != NULL; i++) {
    long long rank = xp_number(gpus.list[i].x, "rank", -1);
    if (rank >= 0) {
      ranks[n++] = rank;
    }
  }
  if (n == 0) {
    xp_find(f, xml->root, &no_gpu, "no GPU with a rank");
    tt_free(ranks);
    return;
  }
  qsort(ranks, (size_t)n, sizeof(*ranks), compare_numbers);
  bool gap = ranks[0] != 0;
  for (int i = 1; i < n; i++) {
    gap |= ranks[i] > ranks[i - 1] + 1;
  }
  if (gap) {
    xp_find(f, xml->root, &holes, "%d ranks, from %lld to %lld", n, ranks[0], ranks[n - 1]);
  }
  tt_free(ranks);
}

static bool known_sm(long long sm)
{
  // 0: a rank on the host device
  static const int known[] = {0,  30, 32, 35, 37, 50, 52, 53,  60,  61,  62,  70,  72,
                              75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};
  for (size_t i = 0; i < TT_COUNT(known); i++) {
    if (known[i] == sm) {
      return true;
    }
  }
  return false;
}

static void check_generations(xp_findings *f, items gpus, bool amd)
{
  const tt_xml_node *first = NULL;
  for (int i = 0; i < gpus.count; i++) {
    const tt_xml_node *x = gpus.list[i].x;
    const char *gcn = tt_xml_get(x, "gcn"), *one = first != NULL ? tt_xml_get(first, "gcn") : NULL;
    long long sm = xp_number(x, "sm", -1);
    if (!amd && gcn == NULL && sm >= 0 && !known_sm(sm)) {
      xp_find(f, x, &odd_sm, "sm=\"%lld\": no such compute capability is known", sm);
    }
    bool other = first != NULL &&
                 (gcn != NULL && one != NULL ? strcmp(gcn, one) != 0 : !amd && sm != xp_number(first, "sm", -1));
    if (other) {
      xp_find(f, x, &mixed, "%s=\"%.32s\": other than the GPU at line %d", gcn != NULL ? "gcn" : "sm",
              gcn != NULL                   ? gcn
              : tt_xml_get(x, "sm") != NULL ? tt_xml_get(x, "sm")
                                            : "",
              first->line);
    }
    first = first == NULL ? x : first;
  }
}

// ---- NVLinks ----

static uint64_t gpu_key(uint64_t host, int64_t bus)
{
  return tt_hash(&bus, sizeof(bus), host + 1);
}

static const item *find_gpu(items gpus, uint64_t key)
{
  item wanted = {.key = key, .order = -1};
  int lo = 0, hi = gpus.count;
  while (lo < hi) {
    int mid = lo + (hi - lo) / 2;
    if (compare_items(&gpus.list[mid], &wanted) < 0) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  return lo < gpus.count && gpus.list[lo].key == key ? &gpus.list[lo] : NULL;
}

static bool is_link(const tt_xml_node *x)
{
  return strcmp(x->tag, "nvlink") == 0 || strcmp(x->tag, "xgmi") == 0;
}

// Links of a GPU towards a bus id; *last is the last such element.
static long long count_to(const tt_xml_node *gpu, int64_t bus, const tt_xml_node **last)
{
  long long sum = 0;
  for (const tt_xml_node *x = gpu->child; x != NULL; x = x->next) {
    const char *target = tt_xml_get(x, "target");
    int64_t to;
    if (is_link(x) && target != NULL && tt_bus_id(target, &to) && to == bus) {
      sum += xp_number(x, "count", 0);
      *last = x;
    }
  }
  return sum;
}

static bool switch_class(const tt_xml_node *x)
{
  const char *class = tt_xml_get(x, "tclass");
  return class != NULL && strncmp(class, "0x03", 4) != 0 && strncmp(class, "0x12", 4) != 0;
}

// More links than could be: comparing each with each would take long.
static bool crowded(const tt_xml_node *gpu)
{
  int links = 0;
  for (const tt_xml_node *x = gpu->child; x != NULL && links <= MOST_LINKS; x = x->next) {
    links += is_link(x);
  }
  return links > MOST_LINKS;
}

static void check_link(xp_findings *f, items gpus, const item *gpu, const tt_xml_node *x)
{
  const char *target = tt_xml_get(x, "target");
  const tt_xml_node *last = NULL, *theirs = NULL;
  int64_t bus;
  if (target == NULL || !tt_bus_id(target, &bus)) {
    return; // said already
  }
  const item *other = find_gpu(gpus, gpu_key(host_of(gpu), bus));
  long long own = count_to(gpu->x, bus, &last);
  if (last != x) {
    xp_find(f, x, &target_twice, "target=\"%.64s\": named again at line %d", target, last->line);
    return;
  }
  if (other == NULL && !switch_class(x) && tt_xml_get(x, "tclass") != NULL) {
    xp_find(f, x, &nowhere, "target=\"%.64s\": no such GPU in this file", target);
  } else if (other == NULL) {
    return;
  } else if (crowded(other->x)) {
    return; // said there
  } else if (switch_class(x)) {
    xp_find(f, x, &odd_class, "tclass=\"%.16s\", but target=\"%.64s\" is the GPU at line %d", tt_xml_get(x, "tclass"),
            target, other->x->line);
  } else if (bus == gpu->bus) {
    xp_find(f, x, &itself, "target=\"%.64s\" is the GPU itself", target);
  } else {
    long long back = count_to(other->x, gpu->bus, &theirs);
    if (back != own) {
      xp_find(f, x, &one_sided, "count=\"%lld\" to %.64s, which has %lld back (line %d)", own, target, back,
              theirs != NULL ? theirs->line : other->x->line);
    }
  }
}

static long long most_links(const tt_xml_node *gpu)
{
  long long sm = xp_number(gpu, "sm", 0);
  return sm < 60 ? 1024 : sm < 70 ? 4 : sm < 80 ? 6 : sm == 86 || sm == 89 ? 4 : sm < 90 ? 12 : 18;
}

// Sums count of a GPU's links.
static long long check_links(xp_findings *f, items gpus, const item *gpu, bool amd)
{
  long long sum = 0;
  if (crowded(gpu->x)) {
    xp_find(f, gpu->x, &too_many, "more than %d elements of links, which are not compared", MOST_LINKS);
    return 0;
  }
  for (const tt_xml_node *x = gpu->x->child; x != NULL; x = x->next) {
    if (is_link(x)) {
      check_link(f, gpus, gpu, x);
      long long count = xp_number(x, "count", 0);
      sum += count > 0 && count <= 1024 ? count : 0;
    }
  }
  if (!amd && tt_xml_child(gpu->x, "nvlink") != NULL && sum > most_links(gpu->x)) {
    xp_find(f, gpu->x, &too_many, "%lld NVLinks; sm=\"%lld\" has %lld", sum, xp_number(gpu->x, "sm", 0),
            most_links(gpu->x));
  }
  return sum;
}

// GPUs of one generation have as many links, unless one is down; where links lead to other GPUs some designs differ.
static void check_all_links(xp_findings *f, items gpus, bool amd)
{
  long long most = 0;
  for (int i = 0; i < gpus.count; i++) {
    gpus.list[i].key = gpu_key(host_of(&gpus.list[i]), gpus.list[i].bus);
  }
  qsort(gpus.list, (size_t)gpus.count, sizeof(item), compare_items);
  for (int i = 0; i < gpus.count; i++) {
    long long own = check_links(f, gpus, &gpus.list[i], amd);
    most = TT_MAX(most, own);
  }
  for (int i = 0; i < gpus.count && !amd; i++) {
    const tt_xml_node *x = gpus.list[i].x, *link = tt_xml_child(x, "nvlink");
    long long own = 0;
    for (; link != NULL; link = tt_xml_sibling(link, "nvlink")) {
      own += xp_number(link, "count", 0);
    }
    if (own < most && own > 0 && most <= most_links(x)) {
      xp_find(f, x, &fewer, "%lld NVLinks; another GPU has %lld", own, most);
    }
  }
}

// ---- CPUs ----

// Words of a mask, the last one first. Returns their number, -1 when it is none.
static int read_mask(const char *text, uint32_t *words)
{
  int n = 0;
  const char *end = text + strlen(text);
  while (end > text && n < MASK_WORDS) {
    const char *begin = end;
    while (begin > text && begin[-1] != ',') {
      begin--;
    }
    size_t digits = (size_t)(end - begin);
    if (digits == 0 || digits > 8 || strspn(begin, "0123456789abcdefABCDEF") < digits) {
      return -1;
    }
    words[n++] = (uint32_t)strtoul(begin, NULL, 16);
    end = begin > text ? begin - 1 : text;
  }
  return n;
}

typedef struct union_of {
  uint32_t words[MASK_WORDS];
  uint64_t host;
} union_of;

static void check_mask(xp_findings *f, const item *cpu, union_of *all)
{
  uint32_t words[MASK_WORDS] = {0};
  const char *text = tt_xml_get(cpu->x, "affinity");
  int n = text != NULL ? read_mask(text, words) : 0;
  bool shared = false;
  if (n < 0) {
    xp_find(f, cpu->x, &mask_bad, "affinity=\"%.64s\": no mask of CPUs", text);
    return;
  }
  for (int i = 0; i < n; i++) {
    shared |= (words[i] & all->words[i]) != 0;
    all->words[i] |= words[i];
  }
  if (shared) {
    xp_find(f, cpu->x, &masks, "affinity=\"%.200s\" has cores of another NUMA node above", text);
  }
}

static void check_cpus(xp_findings *f, items cpus)
{
  union_of *all = tt_calloc(1, sizeof(*all));
  f->no_memory |= all == NULL;
  for (int i = 0; i < cpus.count; i++) {
    cpus.list[i].key = host_of(&cpus.list[i]);
  }
  qsort(cpus.list, (size_t)cpus.count, sizeof(item), compare_items);
  for (int i = 0; i < cpus.count && all != NULL; i++) {
    if (i == 0 || cpus.list[i].key != all->host) {
      *all = (union_of){.host = cpus.list[i].key};
    }
    check_mask(f, &cpus.list[i], all);
    if (xp_number(cpus.list[i].x, "numaid", 0) == -1 && cpus.count > 1) {
      xp_find(f, cpus.list[i].x, &numa_unknown, "numaid=\"-1\" beside other NUMA nodes");
    }
  }
  tt_free(all);
}

// ---- The whole ----

void xp_lint_machine(xp_findings *f, const tt_xml *xml)
{
  bool amd = xp_number(xml->root, "version", 1) == 2;
  items gpus = collect(xml, "gpu"), cpus = collect(xml, "cpu");
  find_all_twice(f, xml);
  if (gpus.list != NULL && cpus.list != NULL) {
    check_ranks(f, xml, gpus);
    check_generations(f, gpus, amd);
    check_all_links(f, gpus, amd);
    check_cpus(f, cpus);
  }
  f->no_memory |= gpus.list == NULL || cpus.list == NULL;
  tt_free(gpus.list);
  tt_free(cpus.list);
  bool net = false;
  for (const tt_xml_node *x = xml->root; x != NULL && !net; x = tt_xml_walk(xml->root, x)) {
    net = strcmp(x->tag, "net") == 0;
  }
  if (!net) {
    xp_find(f, xml->root, &no_net, "no network port");
  }
  xp_lint_slots(f, xml);
}
