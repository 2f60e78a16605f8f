// random_rig.h: machines at random, for tests: sockets, trees of PCI switches, NVLink meshes (also uneven ones, with
// links missing), NVSwitches, NVLink to the CPU, cards of several speeds and ports, several hosts. One seed is one
// machine, for all time: what a test says of a seed can be looked at again.
#pragma once
#include "topo/topo_rig.h"

enum {
  RANDOM_MAX_GPUS = 16,
  RANDOM_MAX_SWITCHES = 12,
  RANDOM_MAX_CARDS = 8,
  RANDOM_MAX_SOCKETS = 4,
  RANDOM_TEXT = 1 << 17
};

// How large machines may become.
typedef struct random_size {
  int gpus, cards, hosts;
} random_size;

typedef struct random_device {
  int socket, above; // switch; -1: the CPU
  int bus;
  int width; // lanes
} random_device;

typedef struct random_gpu {
  random_device at;
  int sm;
  bool gdr;
  int links[RANDOM_MAX_GPUS]; // NVLinks to each GPU
  int to_switch, to_cpu;      // NVLinks to NVSwitches, to the CPU
} random_gpu;

typedef struct random_card {
  random_device at;
  int ports, mbits;
  bool gdr, shared; // shared: its ports are one as far as bandwidth goes
} random_card;

typedef struct random_machine {
  uint64_t state;
  int sockets, hosts, arch; // arch: RANDOM_ARCH_…
  int gen;                  // of PCI
  int nswitches, ngpus, ncards, next_bus, model;
  random_device switches[RANDOM_MAX_SWITCHES]; // those above come first
  random_gpu gpus[RANDOM_MAX_GPUS];
  random_card cards[RANDOM_MAX_CARDS];
} random_machine;

enum { RANDOM_INTEL, RANDOM_AMD, RANDOM_ARM, RANDOM_POWER, RANDOM_ARCHS };

// 0 … below - 1.
RIG int random_pick(random_machine *m, int below)
{
  m->state += 0x9e3779b97f4a7c15u;
  uint64_t x = m->state;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (int)((x ^ (x >> 31)) % (uint64_t)below);
}

// True once in so many times.
RIG bool random_once_in(random_machine *m, int many)
{
  return random_pick(m, many) == 0;
}

#define RANDOM_OF(m, list) (list)[random_pick((m), (int)TT_COUNT(list))]

// ---- Parts ----

RIG random_device random_place(random_machine *m, bool may_hang_on_cpu)
{
  random_device d = {.socket = random_pick(m, m->sockets), .above = -1, .bus = m->next_bus++};
  d.width = random_once_in(m, 8) ? 8 : 16;
  int of_socket[RANDOM_MAX_SWITCHES], count = 0;
  for (int s = 0; s < m->nswitches; s++) {
    if (m->switches[s].socket == d.socket) {
      of_socket[count++] = s;
    }
  }
  if (count > 0 && !(may_hang_on_cpu && random_once_in(m, 4))) {
    d.above = of_socket[random_pick(m, count)];
  }
  return d;
}

RIG void random_make_switches(random_machine *m)
{
  int count = random_once_in(m, 3) ? 0 : random_pick(m, TT_MIN(3 * m->sockets, RANDOM_MAX_SWITCHES) + 1);
  for (int i = 0; i < count; i++) {
    random_device d = random_place(m, false);
    d.above = random_once_in(m, 3) ? d.above : -1;
    m->switches[m->nswitches++] = d;
  }
}

RIG void random_make_gpus(random_machine *m, int count)
{
  static const int capabilities[] = {60, 70, 70, 75, 80, 80, 86, 89, 90, 90, 100, 103};
  int sm = RANDOM_OF(m, capabilities);
  bool even = !random_once_in(m, 3), gdr = !random_once_in(m, 5);
  for (int g = 0; g < count; g++) {
    random_gpu *gpu = &m->gpus[m->ngpus++];
    gpu->at = random_place(m, true);
    if (even) { // spread over sockets, and in each over switches
      gpu->at.socket = g * m->sockets / count;
      gpu->at.above = -1;
      gpu->at.width = 16;
      for (int s = 0, nth = g; s < m->nswitches && m->nswitches > 0; s++) {
        bool here = m->switches[s].socket == gpu->at.socket;
        gpu->at.above = here && nth-- >= 0 ? s : gpu->at.above;
      }
    }
    gpu->sm = random_once_in(m, 20) ? RANDOM_OF(m, capabilities) : sm;
    gpu->gdr = gdr;
  }
}

RIG void random_make_cards(random_machine *m, int most)
{
  static const int speeds[] = {1000, 10000, 25000, 40000, 50000, 100000, 100000, 200000, 200000, 400000, 800000};
  int count = random_pick(m, TT_MIN(most, RANDOM_MAX_CARDS) + 1), speed = RANDOM_OF(m, speeds);
  bool alike = !random_once_in(m, 4), near_gpus = random_once_in(m, 2), gdr = !random_once_in(m, 5);
  for (int c = 0; c < count; c++) {
    random_card *card = &m->cards[m->ncards++];
    card->at = random_place(m, true);
    if (near_gpus) {
      const random_device *gpu = &m->gpus[c * m->ngpus / count].at;
      card->at.socket = gpu->socket;
      card->at.above = gpu->above;
    }
    card->ports = random_once_in(m, 5) ? 2 : 1;
    card->shared = card->ports == 2 && random_once_in(m, 2);
    card->mbits = alike ? speed : RANDOM_OF(m, speeds);
    card->gdr = gdr;
  }
}

// ---- NVLink ----

RIG void random_link(random_machine *m, int a, int b, int count)
{
  if (a != b) {
    m->gpus[a].links[b] = m->gpus[b].links[a] = count;
  }
}

RIG void random_mesh(random_machine *m)
{
  int kind = random_pick(m, 5), most = 1 + random_pick(m, 6);
  for (int a = 0; a < m->ngpus; a++) {
    for (int b = 0; b < a; b++) {
      bool pair = a / 2 == b / 2, ring = a - b == 1 || a - b == m->ngpus - 1,
           socket = m->gpus[a].at.socket == m->gpus[b].at.socket;
      int count = kind == 0   ? most                     // each with each
                  : kind == 1 ? random_pick(m, most + 1) // anything
                  : kind == 2 ? (pair ? most : 0)        // bridges
                  : kind == 3 ? (ring                   ? most
                                 : random_once_in(m, 3) ? 1
                                                        : 0) // a ring, and chords
                              : (socket                 ? most
                                 : random_once_in(m, 4) ? 1
                                                        : 0); // islands, and bridges
      random_link(m, a, b, count);
    }
  }
  for (int broken = random_once_in(m, 4) ? 1 + random_pick(m, 3) : 0; broken > 0; broken--) {
    int a = random_pick(m, m->ngpus), b = random_pick(m, m->ngpus);
    random_link(m, a, b, m->gpus[a].links[b] / 2);
  }
}

RIG void random_make_links(random_machine *m)
{
  int kind = random_pick(m, 8);
  if (m->arch == RANDOM_POWER) {
    int count = 1 + random_pick(m, 3);
    random_mesh(m);
    for (int g = 0; g < m->ngpus; g++) {
      m->gpus[g].to_cpu = count;
    }
  } else if (kind < 2 || m->hosts > 1) {
    static const int counts[] = {6, 12, 18, 18};
    int count = RANDOM_OF(m, counts);
    for (int g = 0; g < m->ngpus; g++) {
      m->gpus[g].to_switch = random_once_in(m, 20) ? count / 2 : count;
    }
  } else if (kind < 6) {
    random_mesh(m);
  }
}

// ---- The document ----

typedef struct random_text {
  char *text;
  size_t used;
  int host;
} random_text;

__attribute__((format(printf, 2, 3))) RIG void random_print(random_text *t, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->text + t->used, RANDOM_TEXT - t->used, format, args);
  va_end(args);
  assert_true(n >= 0 && t->used + (size_t)n < RANDOM_TEXT);
  t->used += (size_t)n;
}

RIG void random_open_pci(const random_machine *m, random_text *t, const random_device *d, const char *class)
{
  static const char *const speeds[] = {"8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe"};
  // The form of a switch: vendor and device unlike those that are taken for parts of one another.
  random_print(t,
               "<pci busid=\"0000:%02x:00.0\" class=\"%s\" vendor=\"0x10b5\" device=\"0x8796\" "
               "subsystem_vendor=\"0x10b5\" subsystem_device=\"0x8796\" link_speed=\"%s\" link_width=\"%d\">\n",
               (unsigned)d->bus, class, speeds[m->gen], d->width);
}

RIG void random_write_gpu(const random_machine *m, random_text *t, int g)
{
  const random_gpu *gpu = &m->gpus[g];
  random_open_pci(m, t, &gpu->at, "0x030200");
  random_print(t, "<gpu dev=\"%d\" sm=\"%d\" rank=\"%d\" gdr=\"%d\">\n", g, gpu->sm, g + t->host * m->ngpus, gpu->gdr);
  for (int b = 0; b < m->ngpus; b++) {
    if (gpu->links[b] > 0) {
      random_print(t, "<nvlink target=\"0000:%02x:00.0\" count=\"%d\" tclass=\"0x030200\"/>\n",
                   (unsigned)m->gpus[b].at.bus, gpu->links[b]);
    }
  }
  if (gpu->to_switch > 0) {
    random_print(t, "<nvlink target=\"0000:f8:00.0\" count=\"%d\" tclass=\"0x068000\"/>\n", gpu->to_switch);
  }
  if (gpu->to_cpu > 0) {
    random_print(t, "<nvlink target=\"0000:f9:00.0\" count=\"%d\" tclass=\"0x068001\"/>\n", gpu->to_cpu);
  }
  random_print(t, "</gpu>\n</pci>\n");
}

RIG void random_write_card(const random_machine *m, random_text *t, int c)
{
  const random_card *card = &m->cards[c];
  int dev = 0;
  for (int before = 0; before < c; before++) {
    dev += m->cards[before].ports;
  }
  random_open_pci(m, t, &card->at, "0x020700");
  random_print(t, "<nic>\n");
  for (int p = 0; p < card->ports; p++, dev++) {
    random_print(
        t,
        "<net name=\"net%d\" dev=\"%d\" speed=\"%d\" port=\"%d\" latency=\"0\" guid=\"0x%x\" maxconn=\"131072\" "
        "gdr=\"%d\"/>\n",
        dev, dev, card->mbits, card->shared ? 1 : p + 1, (unsigned)(0x1000 * (t->host + 1) + c), card->gdr);
  }
  random_print(t, "</nic>\n</pci>\n");
}

// What hangs on a switch, or (-1) on a CPU.
RIG void random_write_below(const random_machine *m, random_text *t, int socket, int above)
{
  for (int s = 0; s < m->nswitches; s++) {
    if (m->switches[s].socket == socket && m->switches[s].above == above) {
      random_open_pci(m, t, &m->switches[s], "0x060400");
      random_write_below(m, t, socket, s);
      random_print(t, "</pci>\n");
    }
  }
  for (int g = 0; g < m->ngpus; g++) {
    if (m->gpus[g].at.socket == socket && m->gpus[g].at.above == above) {
      random_write_gpu(m, t, g);
    }
  }
  for (int c = 0; c < m->ncards; c++) {
    if (m->cards[c].at.socket == socket && m->cards[c].at.above == above) {
      random_write_card(m, t, c);
    }
  }
}

RIG void random_write_host(const random_machine *m, random_text *t)
{
  static const int intel_models[] = {85, 106, 143, 207};
  static const char *const archs[] = {"x86_64", "x86_64", "arm64", "ppc64"};
  static const char *const more[] = {"vendor=\"GenuineIntel\" familyid=\"6\"",
                                     "vendor=\"AuthenticAMD\" familyid=\"175\"", "", ""};
  for (int s = 0; s < m->sockets; s++) {
    random_print(t, "<cpu numaid=\"%d\" affinity=\"\" arch=\"%s\" %s", s, archs[m->arch], more[m->arch]);
    if (m->arch <= RANDOM_AMD) {
      random_print(t, " modelid=\"%d\"", m->arch == RANDOM_INTEL ? intel_models[m->model] : 1);
    }
    if (m->hosts > 1) {
      random_print(t, " host_hash=\"0x%x\"", (unsigned)t->host + 1);
    }
    random_print(t, ">\n");
    random_write_below(m, t, s, -1);
    random_print(t, "</cpu>\n");
  }
}

// The document of machine number `seed`, of at most that size, as text. The caller frees it.
RIG char *random_document(uint64_t seed, random_size most)
{
  static const int sockets[] = {1, 1, 2, 2, 2, 4};
  static const int archs[] = {RANDOM_INTEL, RANDOM_INTEL, RANDOM_AMD, RANDOM_AMD, RANDOM_ARM, RANDOM_POWER};
  random_machine *m = test_calloc(1, sizeof(*m));
  random_text t = {.text = malloc(RANDOM_TEXT)};
  assert_non_null(t.text);
  m->state = seed * 0xd1342543de82ef95u + 1;
  m->next_bus = 0x10;
  m->sockets = RANDOM_OF(m, sockets);
  m->arch = RANDOM_OF(m, archs);
  m->model = random_pick(m, 4);
  m->gen = random_pick(m, 3);
  m->hosts = random_once_in(m, 10) && m->arch != RANDOM_POWER ? 1 + random_pick(m, most.hosts) : 1;
  random_make_switches(m);
  random_make_gpus(m, 1 + random_pick(m, TT_MAX(TT_MIN(most.gpus, RANDOM_MAX_GPUS) / m->hosts, 1)));
  random_make_cards(m, most.cards);
  random_make_links(m);
  random_print(&t, "<system version=\"1\">\n");
  for (t.host = 0; t.host < m->hosts; t.host++) {
    random_write_host(m, &t);
  }
  random_print(&t, "</system>\n");
  test_free(m);
  return t.text;
}
