// show.c: a machine as a tree, as in lstopo, for a terminal; or in another form.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/util.h"
#include "commands.h"

enum { PREFIX = 512 };

// A tree being drawn. Colours are put in when the line is written, so that its width is known.
typedef struct drawing {
  const xp_machine *m;
  const tt_topo *t;
  xp_print *out;
  bool *seen;
  const char **ports;  // names, by node
  const char **parts;  // and what they are made of
  char prefix[PREFIX]; // of the present depth
} drawing;

// ---- Lines ----

// Bytes of the first `columns` characters of UTF-8.
static size_t bytes_of(const char *text, size_t columns)
{
  size_t i = 0, seen = 0;
  for (; text[i] != 0; i++) {
    bool first = ((unsigned char)text[i] & 0xc0) != 0x80;
    if (first && seen++ == columns) {
      break;
    }
  }
  return i;
}

// Writes `n` bytes of text in a colour.
static void put(const drawing *d, xp_colour c, const char *text, size_t n)
{
  fprintf(d->out->f, "%s%.*s%s", xp_ansi(d->out, c), (int)n, text, xp_ansi(d->out, XP_PLAIN));
}

// A line: prefix, name, the rest; cut at the width.
static void line(const drawing *d, const char *branch, xp_colour c, const char *name, const char *rest)
{
  char whole[PREFIX + 16];
  const char *cut = d->out->utf8 ? "…" : ">";
  snprintf(whole, sizeof(whole), "%s%s", d->prefix, branch);
  size_t width = d->out->width > 0 ? (size_t)d->out->width : SIZE_MAX, at = (size_t)xp_columns(whole),
         n = (size_t)xp_columns(name);
  if (at + n >= width) {
    put(d, XP_DIM, whole, bytes_of(whole, TT_MIN(at, width - 1)));
    put(d, c, name, at < width - 1 ? bytes_of(name, width - 1 - at) : 0);
    fprintf(d->out->f, "%s\n", cut);
    return;
  }
  put(d, XP_DIM, whole, strlen(whole));
  put(d, c, name, strlen(name));
  bool fits = at + n + (size_t)xp_columns(rest) <= width;
  fprintf(d->out->f, "%.*s%s\n", (int)bytes_of(rest, fits ? SIZE_MAX : width - 1 - at - n), rest, fits ? "" : cut);
}

// ---- Names and numbers ----

// "0000:0f:00.0" of a node's number.
static void bus_id(int64_t id, char out[24])
{
  unsigned long long n = (unsigned long long)id;
  snprintf(out, 24, "%04llx:%02llx:%02llx.%llx", n >> 20 & 0xffffffff, n >> 12 & 0xff, n >> 4 & 0xff, n & 0xf);
}

// Values of an attribute ("name") of the network ports, by node; free the list, not the texts, which are the
// document's. NULL: no memory.
static const char **port_texts(const xp_machine *m, const char *attribute)
{
  const tt_topo *t = m->topo;
  const char **names = tt_calloc((size_t)t->nnodes + 1, sizeof(*names));
  for (const tt_xml_node *x = m->xml->root; names != NULL && x != NULL; x = tt_xml_walk(m->xml->root, x)) {
    const char *name = strcmp(x->tag, "net") == 0 ? tt_xml_get(x, attribute) : NULL;
    int dev;
    if (name == NULL || tt_xml_get(x, "dev") == NULL || tt_xml_int(x, "dev", TT_XML_INTS, &dev) != ncclSuccess) {
      continue;
    }
    for (int i = t->first[TT_NODE_NET]; i < t->first[TT_NODE_NET + 1]; i++) {
      const tt_topo_node *n = &t->nodes[i];
      bool same = n->net.dev == dev && (n->line == 0 || n->line == x->line);
      names[i] = same && names[i] == NULL ? name : names[i];
    }
  }
  return names;
}

// Kinds of x86 CPU by the numbers of the file, as makers name them. Family as NCCL writes it (the extended one in
// front) or as the kernel does.
static const struct {
  int vendor, family, kernel_family, first, last;
  const char *name;
} cpu_kinds[] = {
    {TT_CPU_INTEL, 6, 6, 45, 45, "Sandy Bridge"},
    {TT_CPU_INTEL, 6, 6, 62, 62, "Ivy Bridge"},
    {TT_CPU_INTEL, 6, 6, 63, 63, "Haswell"},
    {TT_CPU_INTEL, 6, 6, 79, 79, "Broadwell"},
    {TT_CPU_INTEL, 6, 6, 85, 85, "Skylake or Cascade Lake"},
    {TT_CPU_INTEL, 6, 6, 106, 106, "Ice Lake"},
    {TT_CPU_INTEL, 6, 6, 143, 143, "Sapphire Rapids"},
    {TT_CPU_INTEL, 6, 6, 173, 173, "Granite Rapids"},
    {TT_CPU_INTEL, 6, 6, 175, 175, "Sierra Forest"},
    {TT_CPU_INTEL, 6, 6, 207, 207, "Emerald Rapids"},
    {TT_CPU_AMD, 143, 23, 1, 1, "EPYC Naples"},
    {TT_CPU_AMD, 143, 23, 49, 49, "EPYC Rome"},
    {TT_CPU_AMD, 175, 25, 0, 1, "EPYC Milan"},
    {TT_CPU_AMD, 175, 25, 16, 31, "EPYC Genoa"},
    {TT_CPU_AMD, 175, 25, 48, 48, "EPYC Trento"},
    {TT_CPU_AMD, 175, 25, 144, 159, "Instinct MI300A"},
    {TT_CPU_AMD, 175, 25, 160, 175, "EPYC Bergamo"},
    {TT_CPU_AMD, 191, 26, 0, 31, "EPYC Turin"},
    {TT_CPU_ZHAOXIN, 7, 7, 91, 91, "Yongfeng"},
};

// "Intel Sapphire Rapids"; numbers where the kind is not known: "AMD family 143 model 8".
static const char *cpu_name(const drawing *d, const tt_topo_node *n, char *out, size_t size)
{
  static const char *const archs[] = {"CPU", "x86-64", "ARM", "POWER"};
  static const char *const vendors[] = {"x86-64", "Intel", "AMD", "Zhaoxin"};
  int family = -1, model = -1;
  if (n->cpu.arch != TT_CPU_X86) {
    return archs[n->cpu.arch];
  }
  for (const tt_xml_node *x = d->m->xml->root->child; x != NULL; x = x->next) {
    int numa = -1;
    (void)tt_xml_int_or(x, "numaid", -1, (tt_xml_range){-1, INT32_MAX}, &numa);
    if (strcmp(x->tag, "cpu") == 0 && x->line == n->line && numa == n->id) {
      (void)tt_xml_int_or(x, "familyid", -1, (tt_xml_range){-1, INT32_MAX}, &family);
      (void)tt_xml_int_or(x, "modelid", -1, (tt_xml_range){-1, INT32_MAX}, &model);
    }
  }
  for (size_t i = 0; i < TT_COUNT(cpu_kinds); i++) {
    bool same =
        cpu_kinds[i].vendor == n->cpu.vendor && (cpu_kinds[i].family == family || cpu_kinds[i].kernel_family == family);
    if (same && model >= cpu_kinds[i].first && model <= cpu_kinds[i].last) {
      snprintf(out, size, "%s %s", vendors[n->cpu.vendor], cpu_kinds[i].name);
      return out;
    }
  }
  snprintf(out, size, family >= 0 ? "%s family %d model %d" : "%s", vendors[n->cpu.vendor], family, model);
  return out;
}

// "  NVL to GPU1 GPU2 at 80 GB/s": links of a type, grouped by bandwidth.
static void add_links(const drawing *d, int node, int type, bool lower, xp_text *to)
{
  const tt_topo_node *n = &d->t->nodes[node];
  const char *arrow = d->out->utf8 ? "→" : "to";
  float bw = -1;
  char name[64];
  for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
    const tt_topo_link *link = &d->t->links[l];
    bool wanted = link->type == type && (!lower || link->to > node || type != TT_PATH_SYS);
    if (!wanted) {
      continue;
    }
    if (link->bw != bw) {
      xp_add(to, "%s  %s %s", bw >= 0 ? "," : "", tt_link_type_name(type), arrow);
    }
    xp_add(to, " %s", tt_node_name(d->t, link->to, name, sizeof(name)));
    bool last =
        l + 1 == n->first_link + n->nlinks || d->t->links[l + 1].type != type || d->t->links[l + 1].bw != link->bw;
    if (last) {
      xp_add(to, " %g GB/s", (double)link->bw);
    }
    bw = link->bw;
  }
}

static xp_colour describe(const drawing *d, int node, float up, char name[128], xp_text *rest)
{
  const tt_topo_node *n = &d->t->nodes[node];
  char id[24], label[256];
  bus_id(n->id, id);
  tt_node_name(d->t, node, name, 128);
  switch (n->kind) {
  case TT_NODE_GPU:
  case TT_NODE_DEV:
    if (tt_topo_host_rank(n)) {
      xp_add(rest, "  host memory");
      return XP_GPU;
    }
    xp_add(rest, "  %s", id);
    if (n->gpu.gcn != 0 || n->gpu.sm != 0) {
      xp_add(rest, n->gpu.gcn != 0 ? "  gfx%x" : "  sm %d", n->gpu.gcn != 0 ? n->gpu.gcn : n->gpu.sm);
    }
    xp_add(rest, "%s", n->gpu.gdr != 0 ? "  gdr" : "");
    xp_add(rest, "  %g GB/s", (double)up);
    add_links(d, node, TT_PATH_NVL, false, rest);
    add_links(d, node, TT_PATH_C2C, false, rest);
    return XP_GPU;
  case TT_NODE_NET:
    xp_add(rest, "  %s  %g Gbit/s%s%s", d->ports[node] != NULL ? xp_clean(d->ports[node], label, sizeof(label)) : "",
           (double)n->net.bw * 8, n->net.gdr != 0 ? "  gdr" : "", n->net.coll != 0 ? "  reduces" : "");
    if (d->parts[node] != NULL) {
      xp_add(rest, "  made of %s", xp_clean(d->parts[node], label, sizeof(label)));
    }
    return XP_NET;
  case TT_NODE_CPU:
    xp_add(rest, "  %s", cpu_name(d, n, label, sizeof(label)));
    add_links(d, node, TT_PATH_SYS, false, rest);
    return XP_CPU;
  case TT_NODE_NIC: snprintf(name, 128, "NIC"); break;
  case TT_NODE_PCI: snprintf(name, 128, "PCI"); break;
  default: return XP_BOLD;
  }
  if (n->id >= 0) {
    xp_add(rest, "  %s", id);
  }
  if (up > 0 && up < TT_BW_LOC) {
    xp_add(rest, "  %g GB/s", (double)up);
  }
  return XP_PCI;
}

// ---- The tree ----

// Does this link lead down the tree? `seen` has what is above.
static bool leads_down(const drawing *d, const tt_topo_link *l)
{
  bool kind = l->type == TT_LINK_PCI || l->type == TT_PATH_NET || l->type == TT_PATH_LOC;
  bool place = d->t->nodes[l->to].kind != TT_NODE_CPU && d->t->nodes[l->to].kind != TT_NODE_NVS;
  return kind && place && l->to != l->from && !d->seen[l->to];
}

// In the order of the file, which is the nodes' lines.
static int next_child(const drawing *d, int node, float *bw)
{
  const tt_topo_node *n = &d->t->nodes[node];
  int best = -1;
  for (int l = n->first_link; l < n->first_link + n->nlinks; l++) {
    const tt_topo_link *link = &d->t->links[l];
    bool down = leads_down(d, link);
    if (down && (best < 0 || d->t->nodes[link->to].line < d->t->nodes[best].line)) {
      best = link->to;
      *bw = link->bw;
    }
  }
  return best;
}

// How deep it goes is limited by the depth of documents.
static void draw_node(drawing *d, int node, float bw, const char *branch, const char *below)
{
  char name[128];
  xp_text rest = {0};
  float down = 0;
  size_t at = strlen(d->prefix);
  xp_colour c = describe(d, node, bw, name, &rest);
  d->seen[node] = true;
  line(d, branch, c, name, rest.buf);
  snprintf(d->prefix + at, sizeof(d->prefix) - at, "%s", below);
  for (int child = next_child(d, node, &down), next; child >= 0; child = next) {
    float bw_here = down;
    d->seen[child] = true;
    next = next_child(d, node, &down);
    bool u = d->out->utf8;
    draw_node(d, child, bw_here, next >= 0 ? (u ? "├─ " : "|- ") : (u ? "└─ " : "`- "),
              next >= 0 ? (u ? "│  " : "|  ") : "   ");
  }
  d->prefix[at] = 0;
}

static void draw_head(const drawing *d)
{
  char name[512];
  xp_text head = {0};
  char summary[XP_SUMMARY];
  xp_add(&head, ": %s", xp_summary(d->t, summary));
  if (d->m->nodes > 1) {
    xp_add(&head, "; one of %d machines over the network", d->m->nodes);
  }
  if (d->m->ngroups > 1) {
    xp_add(&head, "; %d groups that meet over the network only", d->m->ngroups);
  }
  line(d, "", XP_BOLD, xp_clean(d->m->name, name, sizeof(name)), head.buf);
}

static int show_text(const xp_machine *m, xp_print *out)
{
  drawing d = {.m = m, .t = m->topo, .out = out, .seen = tt_calloc((size_t)m->topo->nnodes + 1, sizeof(bool))};
  bool u = out->utf8;
  d.ports = port_texts(m, "name");
  d.parts = port_texts(m, "parts");
  if (d.seen == NULL || d.ports == NULL || d.parts == NULL) {
    tt_free(d.seen);
    tt_free(d.ports);
    tt_free(d.parts);
    (void)tt_fail(ncclSystemError, "no memory for %d nodes", m->topo->nnodes);
    return xp_complain(1);
  }
  draw_head(&d);
  int nvs = tt_topo_count(d.t, TT_NODE_NVS), last = d.t->first[TT_NODE_CPU + 1] - 1;
  for (int cpu = d.t->first[TT_NODE_CPU]; cpu <= last; cpu++) {
    bool end = cpu == last && nvs == 0;
    draw_node(&d, cpu, 0, end ? (u ? "└─ " : "`- ") : (u ? "├─ " : "|- "), end ? "   " : (u ? "│  " : "|  "));
  }
  for (int s = d.t->first[TT_NODE_NVS]; s < d.t->first[TT_NODE_NVS + 1]; s++) {
    xp_text rest = {0};
    add_links(&d, s, TT_PATH_NVL, false, &rest);
    line(&d, u ? "└─ " : "`- ", XP_BOLD, "NVSwitch", rest.buf);
  }
  tt_free(d.seen);
  tt_free(d.parts);
  tt_free(d.ports);
  return 0;
}

static int show_xml(const xp_machine *m, xp_print *out)
{
  char *text = NULL;
  size_t size = 0;
  if (tt_xml_text(m->xml, &text, &size) != ncclSuccess) {
    return xp_complain(1);
  }
  fwrite(text, 1, size, out->f);
  tt_free(text);
  return 0;
}

// Forms of --format: what must be known for it, and which function writes it as text or draws it.
typedef struct form {
  const char *name;
  xp_depth depth;
  int (*write)(const xp_machine *m, xp_print *out);
  ncclResult_t (*draw)(const xp_drawing *d, FILE *f);
} form;

static const form forms[] = {
    {"text", XP_TO_MACHINE, show_text, NULL},  {"xml", XP_TO_MACHINE, show_xml, NULL},
    {"json", XP_TO_MODEL, NULL, xp_draw_json}, {"svg", XP_TO_GRAPHS, NULL, xp_draw_svg},
    {"html", XP_TO_MODEL, NULL, xp_draw_html},
};

static const char *form_at(void *arg, int i)
{
  (void)arg;
  return i < (int)TT_COUNT(forms) ? forms[i].name : NULL;
}

static const form *find_form(const char *name)
{
  for (size_t i = 0; i < TT_COUNT(forms); i++) {
    if (name == NULL || strcmp(forms[i].name, name) == 0) {
      return &forms[i];
    }
  }
  const char *near = xp_nearest(name, form_at, NULL);
  fprintf(stderr, "tutti-topo: --format %.80s: there is", name);
  for (size_t i = 0; i < TT_COUNT(forms) && near == NULL; i++) {
    fprintf(stderr, " %s", forms[i].name);
  }
  fprintf(stderr, near != NULL ? " none of that name; the nearest is %s\n" : "%s\n", near != NULL ? near : "");
  return NULL;
}

// What stands above: the option's, or the file's name.
static const char *title_of(const xp_options *o, const xp_machine *m)
{
  const char *slash = strrchr(m->name, '/'), *name = slash != NULL && slash[1] != 0 ? slash + 1 : m->name;
  return o->title != NULL ? o->title : name;
}

// Draws the machine; where its ranks fall into groups, each has channels of its own, and none are shown.
static ncclResult_t draw(const form *f, const xp_options *o, const xp_machine *m, xp_print *out)
{
  xp_curves curves = {0};
  const char **ports = port_texts(m, "name");
  ncclResult_t res = ports != NULL ? ncclSuccess : tt_fail(ncclSystemError, "no memory for %d nodes", m->topo->nnodes);
  if (res == ncclSuccess && f->depth == XP_TO_MODEL) {
    res = xp_curves_make(m, o->file[0] == NULL && tt_params_get()->topo_file == NULL, &curves);
  }
  xp_drawing d = {title_of(o, m), m->topo, m->paths, m->ngroups == 1 ? &m->group[0].graphs : NULL,
                  ports,          &curves, m->nodes};
  res = res == ncclSuccess ? f->draw(&d, out->f) : res;
  xp_curves_clear(&curves);
  tt_free(ports);
  return res;
}

// An exit code. What cannot be written is said at the end.
static int write_form(const form *f, const xp_options *o, const xp_machine *m, xp_print *out)
{
  if (f->write != NULL) {
    return f->write(m, out);
  }
  return draw(f, o, m, out) != ncclSuccess && ferror(out->f) == 0 ? xp_complain(1) : 0;
}

int xp_show(const xp_options *o, xp_print *out)
{
  xp_work w;
  const form *f = find_form(o->format);
  if (f == NULL) {
    return 2;
  }
  if (o->title != NULL && f->draw == NULL) {
    fprintf(stderr, "tutti-topo: --title is for --format svg, html and json; %s has none\n", f->name);
    return 2;
  }
  int code = xp_prepare(o, f->depth, &w);
  code = code == 0 ? write_form(f, o, &w.m, out) : code;
  xp_release(&w);
  return code;
}
