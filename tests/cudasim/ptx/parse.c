// parse.c: modules, functions and their parameters.
#include "ptx_priv.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct ptx_kernel *function_named(struct ptx_parser *p, const char *name, bool entry)
{
  struct ptx_symbol known;
  if (ptx_symbol_find(p, name, &known)) {
    if (known.kind != PTX_SYM_FUNCTION || known.function->defined) {
      ptx_fail(p, "'%.60s' is there already", name);
    }
    return known.function;
  }
  struct ptx_module *m = p->module;
  struct ptx_kernel *f = ptx_keep(m, sizeof *f);
  struct ptx_symbol *s = ptx_symbol_add(p, name, PTX_SYM_FUNCTION);
  s->function = f;
  f->module = m;
  f->name = s->name;
  f->entry = entry;
  f->info.max_threads = 1024;
  m->functions = ptx_grow(m->functions, &m->functions_room, m->nfunctions, sizeof *m->functions);
  m->functions[m->nfunctions++] = f;
  return f;
}

static size_t align_up(size_t value, size_t align)
{
  return (value + align - 1) / align * align;
}

static bool add_kernel_param(struct ptx_parser *p, const char *name, size_t bytes, size_t align)
{
  struct ptx_kernel_info *info = &p->fn->info;
  if (info->params == PTX_MAX_PARAMS) {
    return ptx_fail(p, "more than %d parameters", PTX_MAX_PARAMS);
  }
  size_t offset = align_up(info->param_bytes, align);
  info->param[info->params++] = (struct ptx_param){.offset = offset, .bytes = bytes};
  info->param_bytes = offset + bytes;
  struct ptx_symbol *s = ptx_symbol_add(p, name, PTX_SYM_PARAM);
  s->address = offset;
  s->size = bytes;
  return true;
}

static struct ptx_symbol *add_formal(struct ptx_parser *p, const char *name, bool reg, size_t bytes, size_t align)
{
  struct ptx_kernel *f = p->fn;
  int n = f->results + f->arguments;
  struct ptx_formal formal = {.reg = reg, .bytes = (uint32_t)bytes};
  struct ptx_symbol *s = ptx_symbol_add(p, name, reg ? PTX_SYM_REG : PTX_SYM_FRAME);
  s->bytes = (int)bytes;
  s->size = bytes;
  if (reg) {
    s->slot = ptx_slot_new(p, 1);
    formal.at = (uint32_t)s->slot;
  } else {
    s->address = align_up(f->frame_bytes, align);
    f->frame_bytes = s->address + bytes;
    formal.at = (uint32_t)s->address;
  }
  struct ptx_formal *all = ptx_keep(f->module, (size_t)(n + 1) * sizeof *all);
  if (n > 0) {
    memcpy(all, f->formals, (size_t)n * sizeof *all);
  }
  all[n] = formal;
  f->formals = all;
  return s;
}

// Attributes of a parameter's type, then the type; returns its bytes, -1 on errors.
static int param_type(struct ptx_parser *p, size_t *align)
{
  int bytes = -1;
  int64_t n = 0;
  while (p->kind == PTX_WORD && p->token[0] == '.') {
    if (ptx_accept(p, ".align")) {
      if (!ptx_integer(p, &n)) {
        return -1;
      }
      if (bytes < 0) { // behind .ptr it speaks of what is pointed to
        *align = (size_t)n;
      }
    } else {
      int b = ptx_type_bytes(p->token + 1);
      bytes = b >= 0 ? b : bytes; // .ptr and state spaces: nothing to do
      ptx_next(p);
    }
  }
  if (bytes < 0) {
    ptx_fail(p, "a type expected, not '%.60s'", p->token);
  }
  return bytes;
}

static bool parse_param(struct ptx_parser *p, bool result)
{
  bool reg = ptx_is(p, ".reg");
  size_t align = 0;
  if (!reg && !ptx_is(p, ".param")) {
    return ptx_fail(p, "'.param' expected, not '%.60s'", p->token);
  }
  ptx_next(p);
  int element = param_type(p, &align);
  if (element < 0) {
    return false;
  }
  char name[sizeof p->token];
  strcpy(name, p->token);
  ptx_next(p);
  int64_t count = 1;
  if (ptx_accept(p, "[") && (!ptx_integer(p, &count) || !ptx_expect(p, "]"))) {
    return false;
  }
  size_t bytes = (size_t)element * (size_t)count;
  align = align ? align : element ? (size_t)element : 1;
  if (p->fn->entry) {
    return add_kernel_param(p, name, bytes, align);
  }
  add_formal(p, name, reg, bytes, align);
  *(result ? &p->fn->results : &p->fn->arguments) += 1;
  return !p->failed;
}

static bool parse_params(struct ptx_parser *p, bool results)
{
  if (!ptx_accept(p, "(")) {
    return true;
  }
  if (ptx_accept(p, ")")) {
    return true;
  }
  do {
    if (!parse_param(p, results)) {
      return false;
    }
  } while (ptx_accept(p, ","));
  return ptx_expect(p, ")");
}

// .maxntid and the like, up to the body.
static bool parse_properties(struct ptx_parser *p)
{
  while (p->kind == PTX_WORD && p->token[0] == '.') {
    bool threads = ptx_is(p, ".maxntid") || ptx_is(p, ".reqntid");
    int64_t n, product = 1;
    ptx_next(p);
    if (p->kind == PTX_STRING) {
      ptx_next(p);
      ptx_expect(p, ";");
    }
    while (p->kind == PTX_NUMBER && ptx_integer(p, &n)) {
      product *= n;
      ptx_accept(p, ",");
    }
    if (threads) {
      p->fn->info.max_threads = (int)product;
    }
  }
  return !p->failed;
}

// Constants stand behind the registers, whose number is known now.
static void place_constants(struct ptx_kernel *f)
{
  f->values = ptx_grow(f->values, &f->consts_room, f->consts, sizeof *f->values); // never NULL
  for (int i = 0; i < f->n; i++) {
    struct ptx_ins *ins = &f->code[i];
    for (int j = 0; j <= PTX_VECTOR; j++) {
      if (ins->in[j] >= PTX_CONST_SLOT) {
        ins->in[j] = (uint16_t)(ins->in[j] - PTX_CONST_SLOT + f->regs);
      }
    }
  }
}

static bool parse_function(struct ptx_parser *p, bool entry)
{
  struct ptx_kernel before = {.entry = entry, .module = p->module};
  p->fn = &before; // takes the results until the name is known
  ptx_next(p);
  ptx_scope_open(p);
  if (!entry && !parse_params(p, true)) {
    return false;
  }
  int results = p->nsymbols;
  if (p->kind != PTX_WORD) {
    return ptx_fail(p, "a name expected, not '%.60s'", p->token);
  }
  // The function's own name belongs outside the scope that holds its parameters.
  struct ptx_symbol held[16];
  int nheld = results - p->scopes[p->scope - 1];
  if (nheld > 16) {
    return ptx_fail(p, "more than 16 results");
  }
  for (int i = 0; i < nheld; i++) {
    held[i] = p->symbols[results - nheld + i];
  }
  ptx_symbols_drop(p, results - nheld);
  p->scope--;
  struct ptx_kernel *f = function_named(p, p->token, entry);
  if (p->failed) {
    return false;
  }
  ptx_scope_open(p);
  for (int i = 0; i < nheld; i++) {
    struct ptx_symbol *s = ptx_symbol_add(p, held[i].name, held[i].kind);
    held[i].before = s->before;
    *s = held[i];
  }
  f->formals = before.formals;
  f->results = before.results;
  f->arguments = 0;
  f->regs = before.regs;
  f->frame_bytes = before.frame_bytes;
  p->fn = f;
  p->sink = p->carry = -1;
  ptx_next(p);
  if (!parse_params(p, false) || !parse_properties(p)) {
    return false;
  }
  if (!ptx_accept(p, ";")) {
    f->defined = true;
    if (!ptx_expect(p, "{") || !ptx_parse_body(p)) {
      return false;
    }
    place_constants(f);
  }
  p->fn = NULL;
  return ptx_scope_close(p);
}

// .section name { ... }
static bool skip_section(struct ptx_parser *p)
{
  while (p->kind != PTX_END && !ptx_is(p, "{")) {
    ptx_next(p);
  }
  while (p->kind != PTX_END && !ptx_is(p, "}")) {
    ptx_next(p);
  }
  return ptx_expect(p, "}");
}

static bool parse_top(struct ptx_parser *p)
{
  bool external = false;
  while (ptx_is(p, ".visible") || ptx_is(p, ".weak") || ptx_is(p, ".common") || ptx_is(p, ".extern")) {
    external |= ptx_is(p, ".extern");
    ptx_next(p);
  }
  if (ptx_is(p, ".entry") || ptx_is(p, ".func")) {
    return parse_function(p, ptx_is(p, ".entry"));
  }
  if (ptx_is(p, ".global") || ptx_is(p, ".const") || ptx_is(p, ".shared")) {
    return ptx_parse_variables(p, external);
  }
  if (ptx_is(p, ".section")) {
    return skip_section(p);
  }
  if (ptx_is(p, ".pragma")) {
    ptx_next(p);
    ptx_next(p);
    return ptx_expect(p, ";");
  }
  if (ptx_is(p, ".file") || ptx_is(p, ".target") || ptx_is(p, ".loc")) {
    ptx_skip_line(p);
    return !p->failed;
  }
  return ptx_fail(p, "'%.60s' is not known here", p->token);
}

static bool parse_head(struct ptx_parser *p)
{
  if (!ptx_expect(p, ".version")) {
    return false;
  }
  ptx_skip_line(p);
  if (!ptx_is(p, ".target")) {
    return ptx_expect(p, ".target");
  }
  ptx_skip_line(p);
  return ptx_expect(p, ".address_size") && (ptx_accept(p, "64") || ptx_fail(p, "addresses of %.60s bits", p->token));
}

// Slots, frames and depth of a function with all that it calls.
static bool measure(struct ptx_parser *p, struct ptx_kernel *f)
{
  p->token_line = f->n > 0 ? (int)f->code[0].line : p->line;
  if (f->measuring) {
    return ptx_fail(p, "'%.60s' calls itself", f->name);
  }
  if (!f->defined) {
    return ptx_fail(p, "'%.60s' is called and has no body", f->name);
  }
  if (f->measured) {
    return true;
  }
  f->measuring = true;
  int slots = 0, depth = 0;
  size_t frame = 0;
  f->frame_bytes = align_up(f->frame_bytes, PTX_FRAME_ALIGN);
  f->info.shared_bytes = f->shared_end;
  f->info.dynamic_shared = f->dynamic;
  for (int i = 0; i < f->ncallees; i++) {
    struct ptx_kernel *c = f->callees[i];
    if (!measure(p, c)) {
      return false;
    }
    slots = c->total_slots > slots ? c->total_slots : slots;
    frame = c->total_frame > frame ? c->total_frame : frame;
    depth = c->depth + 1 > depth ? c->depth + 1 : depth;
    f->info.dynamic_shared |= c->info.dynamic_shared;
    if (f->own_shared && c->info.shared_bytes >= f->own_shared) {
      return ptx_fail(p, "'%.60s' calls '%.60s', whose shared variables are declared behind it", f->name, c->name);
    }
    if (c->info.shared_bytes > f->info.shared_bytes) {
      f->info.shared_bytes = c->info.shared_bytes;
    }
  }
  f->total_slots = f->regs + f->consts + slots;
  f->total_frame = f->frame_bytes + frame;
  f->depth = depth;
  f->measuring = false;
  f->measured = true;
  return depth <= PTX_CALLS || ptx_fail(p, "calls of '%.60s' are nested more than %d deep", f->name, PTX_CALLS);
}

static bool parse_module(struct ptx_parser *p)
{
  ptx_next(p);
  if (!parse_head(p)) {
    return false;
  }
  while (p->kind != PTX_END) {
    if (!parse_top(p)) {
      return false;
    }
  }
  for (int i = 0; i < p->module->nfunctions && !p->failed; i++) {
    if (p->module->functions[i]->defined) {
      measure(p, p->module->functions[i]);
    }
  }
  return !p->failed;
}

// Modules without variables: nothing writes into them once they are read. So each text is read once, however many
// devices have it. share_lock guards the list, and the users of all modules.
static struct ptx_module *shared;
static pthread_mutex_t share_lock = PTHREAD_MUTEX_INITIALIZER;

// The module with this text, with one user more; NULL: there is none.
static struct ptx_module *find_shared(const char *text)
{
  pthread_mutex_lock(&share_lock);
  struct ptx_module *m = shared;
  while (m && strcmp(m->text, text) != 0) {
    m = m->next;
  }
  if (m) {
    m->users++;
  }
  pthread_mutex_unlock(&share_lock);
  return m;
}

static void share(struct ptx_module *m)
{
  if (m->nglobals == 0) {
    pthread_mutex_lock(&share_lock);
    m->next = shared;
    shared = m;
    pthread_mutex_unlock(&share_lock);
  }
}

// One user less. Was it the last one? Then nobody finds the module any more.
static bool unshare(struct ptx_module *m)
{
  pthread_mutex_lock(&share_lock);
  bool last = --m->users == 0;
  struct ptx_module **at = &shared;
  while (last && *at && *at != m) {
    at = &(*at)->next;
  }
  if (last && *at) {
    *at = m->next;
  }
  pthread_mutex_unlock(&share_lock);
  return last;
}

struct ptx_module *ptx_module_create(const char *text, char why[PTX_TEXT])
{
  struct ptx_module *m = find_shared(text);
  why[0] = 0;
  if (m) {
    return m;
  }
  m = calloc(1, sizeof *m);
  if (!m) {
    return NULL;
  }
  m->users = 1;
  size_t n = strlen(text) + 1;
  m->text = memcpy(ptx_keep(m, n), text, n);
  struct ptx_parser p = {.module = m, .at = m->text, .line = 1, .why = why};
  bool good = parse_module(&p);
  free(p.symbols);
  free(p.scopes);
  free(p.references);
  if (!good) {
    ptx_module_destroy(m);
    return NULL;
  }
  share(m);
  return m;
}

void ptx_module_destroy(struct ptx_module *m)
{
  if (!m || !unshare(m)) {
    return;
  }
  for (int i = 0; i < m->nfunctions; i++) {
    free(m->functions[i]->code);
    free(m->functions[i]->values);
    free(m->functions[i]->callees);
  }
  for (int i = 0; i < m->nkept; i++) {
    free(m->kept[i]);
  }
  free(m->kept);
  free(m->functions);
  free(m->globals);
  free(m->opcodes);
  free(m);
}

const struct ptx_kernel *ptx_module_kernel(const struct ptx_module *m, const char *name)
{
  for (int i = 0; i < m->nfunctions; i++) {
    if (m->functions[i]->entry && m->functions[i]->defined && strcmp(m->functions[i]->name, name) == 0) {
      return m->functions[i];
    }
  }
  return NULL;
}

void *ptx_module_global(const struct ptx_module *m, const char *name, size_t *bytes)
{
  for (int i = 0; i < m->nglobals; i++) {
    if (strcmp(m->globals[i].name, name) == 0) {
      *bytes = m->globals[i].bytes;
      return m->globals[i].storage;
    }
  }
  return NULL;
}

void ptx_kernel_info(const struct ptx_kernel *kernel, struct ptx_kernel_info *info)
{
  *info = kernel->info;
}
