// explore.c: see explore.h. Depth-first; threads' stacks are copied, so that a state can be gone on from once more.
#define _GNU_SOURCE // registers by name
#include "explore_atomics.h"

#undef syscall

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <cmocka.h>

#include "explore.h"

enum {
  STORES = 3,
  STACK = 64 << 10,
  BELOW = 1024,
  DEPTH = 4000,
  SITES = 256,
  WORDS = 1024,
  SLOTS = 1 << 20,
  STATES = SLOTS / 2,
  EDGES = 4 * STATES
};

typedef struct store {
  volatile void *at;
  uint64_t value;
  unsigned size;
} store;

typedef struct thread {
  ucontext_t context;
  char *low;      // nothing of the stack lies below
  ex_access next; // what it does in its next step
  const ex_site *site;
  uint64_t result; // of its last step
  bool ended, asleep, dead;
  int nstores; // in its store buffer, oldest first
  store stores[STORES];
} thread;

// What can happen in a state: a step or the oldest store of a thread, the death of thread 0, the end of a thread's
// sleep by time.
typedef enum kind { STEP, FLUSH, DIE, WAKE_UP, KINDS } kind;
enum { CHOICES = KINDS * EX_THREADS };

// A state on the way to the current one.
typedef struct frame {
  uint32_t number;
  thread threads[EX_THREADS];
  char *copy; // of the memory, then of the stacks
  int choice; // the next to be tried
} frame;

typedef struct mutant {
  const ex_site *site;
  enum { NONE, OMITTED, WEAKENED } how;
} mutant;

static struct {
  const ex_scene *scene;
  int nthreads;
  thread threads[EX_THREADS];
  ucontext_t home;
  int running;
  const char *wrong;
  mutant mutant;
  frame *frames;
  int depth;
  unsigned states;
} ex;

// A state that was visited: two hashes of it, how it was reached first, and whether everybody can end from there.
typedef struct node {
  uint64_t key[2];
  uint32_t parent;
  uint8_t choice;
  bool can_end, on_way, beyond;
  const ex_site *site; // of the step that led here
} node;

typedef struct edge {
  uint32_t from, to;
} edge;

static char stacks[EX_THREADS][STACK] __attribute__((aligned(64)));
static uint32_t *slots; // numbers of states plus one, by their hashes
static node *nodes;
static edge *edges;
static uint32_t nedges;
static const ex_site *sites[SITES];
static ex_op site_ops[SITES];
static bool site_ordered[SITES];
static unsigned site_scenes[SITES]; // those that pass it: bits
static unsigned scene_bit;
static int nsites;

// Which threads read and write a word, as far as the scene is explored: bits. What nobody else can see, or change,
// needs no other order (find_hidden).
typedef struct users {
  const volatile void *at;
  uint8_t readers, writers;
} users;

static users words[WORDS];
static bool words_grew; // what was taken for hidden may not be

static users *users_of(const volatile void *at)
{
  at = (const volatile void *)((uintptr_t)at & ~(uintptr_t)7);
  size_t i = ((uintptr_t)at >> 3) * 2654435761u % WORDS;
  while (words[i].at != NULL && words[i].at != at) {
    i = (i + 1) % WORDS;
  }
  words[i].at = at;
  return &words[i];
}

static void note_user(int t, const ex_access *a)
{
  users *u = users_of(a->at), was = *u;
  u->readers |= (uint8_t)((a->op != EX_STORE && a->op != EX_SET) << t);
  u->writers |= (uint8_t)((a->op != EX_LOAD) << t);
  words_grew |= u->readers != was.readers || u->writers != was.writers;
}

static bool is_private(int t, const volatile void *at, bool loads)
{
  const users *u = users_of(at);
  return ((u->writers | (loads ? 0 : u->readers)) & ~(1 << t)) == 0;
}

// ---- hashes

static uint64_t mix(uint64_t h, uint64_t x)
{
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t size)
{
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = 0;
    memcpy(&word, (const char *)bytes + i, size - i < 8 ? size - i : 8);
    h = mix(h, word);
  }
  return h;
}

// Where a thread stands and what its variables are: its registers, and its stack.
static uint64_t hash_thread(uint64_t h, const thread *th, const char *top)
{
#if defined(__x86_64__) // those alone that a call leaves as they are: the others are leftovers, by which the same state
                        // would be taken for two
  static const int kept[] = {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15, REG_RSP, REG_RIP};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    h = mix(h, (uint64_t)th->context.uc_mcontext.gregs[kept[i]]);
  }
  const char *low = (const char *)(uintptr_t)th->context.uc_mcontext.gregs[REG_RSP];
#else
  h = hash_bytes(h, &th->context.uc_mcontext, sizeof th->context.uc_mcontext);
  const char *low = th->low;
#endif
  return hash_bytes(h, low, (size_t)(top - low));
}

static uint64_t hash_state(uint64_t h)
{
  h = hash_bytes(h, ex.scene->memory, ex.scene->size);
  for (const ex_span *m = ex.scene->spans; m != NULL && m->at != NULL; m++) {
    h = hash_bytes(h, m->at, m->size);
  }
  for (int t = 0; t < ex.nthreads; t++) {
    const thread *th = &ex.threads[t];
    h = th->ended || th->dead ? h : hash_thread(h, th, stacks[t] + STACK);
    h = mix(h, (uint64_t)th->ended | (uint64_t)th->asleep << 1 | (uint64_t)th->dead << 2 | (uint64_t)th->nstores << 3);
    for (int i = 0; i < th->nstores; i++) {
      h = mix(mix(h, (uint64_t)(uintptr_t)th->stores[i].at), th->stores[i].value);
    }
  }
  return h;
}

// The number of the current state. *fresh: it was not known.
static uint32_t number_of_state(bool *fresh)
{
  uint64_t key[2] = {hash_state(1), hash_state(0x1234567)};
  size_t i = key[1] % SLOTS;
  for (; slots[i] != 0; i = (i + 1) % SLOTS) {
    if (memcmp(nodes[slots[i] - 1].key, key, sizeof key) == 0) {
      *fresh = false;
      return slots[i] - 1;
    }
  }
  *fresh = true;
  if (ex.states == STATES) {
    ex.wrong = "there are too many states";
    return 0;
  }
  slots[i] = ex.states + 1;
  nodes[ex.states] = (node){.key = {key[0], key[1]}};
  return ex.states++;
}

// ---- memory

static uint64_t read_memory(const volatile void *at, unsigned size)
{
  uint64_t v = 0;
  memcpy(&v, (const void *)at, size);
  return v;
}

static void write_memory(volatile void *at, unsigned size, uint64_t v)
{
  memcpy((void *)at, &v, size);
}

// What a thread sees: its own latest store first.
static uint64_t see(const thread *th, const volatile void *at, unsigned size)
{
  for (int i = th->nstores; i-- > 0;) {
    if (th->stores[i].at == at) {
      return th->stores[i].value;
    }
  }
  return read_memory(at, size);
}

static void flush(thread *th)
{
  write_memory(th->stores[0].at, th->stores[0].size, th->stores[0].value);
  memmove(&th->stores[0], &th->stores[1], sizeof th->stores[0] * (STORES - 1));
  th->nstores--;
}

// ---- threads

static void enter(int t)
{
  ex.scene->threads[t]();
  ex.threads[t].ended = true;
  swapcontext(&ex.threads[t].context, &ex.home);
}

// Goes on with a thread until its next access, or its end.
static void run(int t, uint64_t result)
{
#if defined(__x86_64__) // leftovers below the stack, for the same reason as in hash_thread
  uintptr_t top = (uintptr_t)ex.threads[t].context.uc_mcontext.gregs[REG_RSP];
  memset((void *)(top - BELOW / 2), 0, BELOW / 2);
#endif
  ex.threads[t].result = result;
  ex.running = t;
  swapcontext(&ex.home, &ex.threads[t].context);
}

static void note_site(const ex_site *site, const ex_access *a)
{
  for (int i = 0; i < nsites; i++) {
    if (sites[i] == site) {
      site_scenes[i] |= scene_bit;
      return;
    }
  }
  assert_true(nsites < SITES);
  site_ops[nsites] = a->op;
  site_ordered[nsites] = a->ordered;
  site_scenes[nsites] = scene_bit;
  sites[nsites++] = site;
}

uint64_t ex_access_word(ex_access *a, const ex_site *site)
{
  thread *th = &ex.threads[ex.running];
  th->next = *a;
  th->site = site;
  th->low = (char *)__builtin_frame_address(0) - BELOW;
  note_site(site, a);
  *a = (ex_access){.op = EX_LOAD};
  swapcontext(&th->context, &ex.home);
  return ex.threads[ex.running].result;
}

long ex_syscall(const ex_site *site, long number, ...)
{
  va_list args;
  va_start(args, number);
  ex_access a = {.at = va_arg(args, volatile void *), .size = 4, .ordered = true};
  int op = va_arg(args, int);
  a.expected = a.value = va_arg(args, unsigned);
  va_end(args);
  ex_require(number == SYS_futex && (op == FUTEX_WAIT || op == FUTEX_WAKE), "only futexes may be called");
  a.op = op == FUTEX_WAIT ? EX_WAIT : EX_WAKE;
  uint64_t r = ex_access_word(&a, site);
  errno = (int)r;
  return r == 0 ? 0 : -1;
}

void ex_require(bool holds, const char *what)
{
  ex.wrong = holds || ex.wrong != NULL ? ex.wrong : what;
}

bool ex_is_dead(void)
{
  static const ex_site site = {"ex_is_dead", "look", ""};
  static uint32_t word; // a step, of which the result tells
  ex_access_word(&(ex_access){.op = EX_LOAD, .at = &word, .size = 4}, &site);
  return ex.threads[0].dead && ex.threads[0].nstores == 0;
}

// ---- steps

static bool is_mutant(const thread *th, int how)
{
  return (int)ex.mutant.how == how && ex.mutant.site == th->site;
}

// Does the access wait until the store buffer is empty?
static bool is_locked(const thread *th)
{
  bool plain = th->next.op == EX_LOAD || (th->next.op == EX_STORE && !th->next.ordered);
  return !plain && !is_mutant(th, WEAKENED) && !is_mutant(th, OMITTED);
}

static bool can_step(const thread *th)
{
  if (th->ended || th->asleep || th->dead) {
    return false;
  }
  if (th->next.op == EX_UNTIL && !is_mutant(th, OMITTED) &&
      read_memory(th->next.at, th->next.size) == th->next.expected) {
    return false;
  }
  bool stores = th->next.op != EX_LOAD && th->next.op != EX_FENCE;
  return is_locked(th) ? th->nstores == 0 : !stores || th->nstores < STORES;
}

// Wakes those who sleep on the word; a weakened call one of them.
static void wake(const thread *waker)
{
  for (int t = 0; t < ex.nthreads; t++) {
    if (ex.threads[t].asleep && ex.threads[t].next.at == waker->next.at) {
      ex.threads[t].asleep = false;
      run(t, 0);
      if (is_mutant(waker, WEAKENED)) {
        return;
      }
    }
  }
}

// What a store or a read-modify-write leaves in the word.
static uint64_t changed(const ex_access *a, uint64_t old)
{
  uint64_t mask = a->size == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * a->size) - 1;
  return (a->op == EX_ADD ? old + a->value : a->op == EX_CAS && old != (a->expected & mask) ? old : a->value) & mask;
}

// The access itself. Returns false where the thread sleeps now; *result as ex_access_word.
static bool perform(thread *th, uint64_t *result)
{
  const ex_access *a = &th->next;
  *result = 0;
  if (a->op == EX_FENCE) {
    return true;
  }
  if (a->op == EX_WAIT) {
    th->asleep = is_mutant(th, WEAKENED) || read_memory(a->at, a->size) == a->expected;
    *result = th->asleep ? 0 : EAGAIN;
    return !th->asleep;
  }
  if (a->op == EX_WAKE) {
    if (!is_mutant(th, OMITTED)) {
      wake(th);
    }
    return true;
  }
  *result = see(th, a->at, a->size);
  if (a->op != EX_LOAD && !is_mutant(th, OMITTED)) {
    if (is_locked(th)) {
      write_memory(a->at, a->size, changed(a, *result));
    } else {
      th->stores[th->nstores++] = (store){a->at, changed(a, *result), a->size};
    }
  }
  *result = a->op == EX_STORE ? 0 : *result;
  return true;
}

static void take_step(int t)
{
  uint64_t result;
  if (ex.threads[t].next.at != NULL) {
    note_user(t, &ex.threads[t].next);
  }
  if (perform(&ex.threads[t], &result)) {
    run(t, result);
  }
}

// Takes the choice, if it is one. Returns whether it was.
static bool take(int choice)
{
  int t = choice % EX_THREADS;
  thread *th = &ex.threads[t];
  bool mortal = ex.scene->mortal, can = false;
  if (t >= ex.nthreads) {
    return false;
  }
  switch ((kind)(choice / EX_THREADS)) {
  case STEP: can = can_step(th); break;
  case FLUSH: can = th->nstores > 0; break;
  case DIE: can = mortal && t == 0 && !th->ended && !th->dead; break;
  default: can = mortal && th->asleep && ex.threads[0].dead && ex.threads[0].nstores == 0; break; // much later
  }
  if (!can) {
    return false;
  }
  switch ((kind)(choice / EX_THREADS)) {
  case STEP: take_step(t); break;
  case FLUSH: flush(th); break;
  case DIE:
    th->dead = true;
    th->asleep = false;
    break;
  default:
    th->asleep = false;
    run(t, ETIMEDOUT);
    break;
  }
  return true;
}

// ---- states

static void save(frame *f)
{
  size_t size = ex.scene->size;
  for (const ex_span *m = ex.scene->spans; m != NULL && m->at != NULL; m++) {
    size += m->size;
  }
  for (int t = 0; t < ex.nthreads; t++) {
    size += (size_t)(stacks[t] + STACK - ex.threads[t].low);
  }
  memcpy(f->threads, ex.threads, sizeof f->threads);
  f->copy = malloc(size);
  assert_non_null(f->copy);
  memcpy(f->copy, ex.scene->memory, ex.scene->size);
  char *at = f->copy + ex.scene->size;
  for (const ex_span *m = ex.scene->spans; m != NULL && m->at != NULL; m++) {
    memcpy(at, m->at, m->size);
    at += m->size;
  }
  for (int t = 0; t < ex.nthreads; t++) {
    size_t n = (size_t)(stacks[t] + STACK - ex.threads[t].low);
    memcpy(at, ex.threads[t].low, n);
    at += n;
  }
}

static void restore(const frame *f)
{
  memcpy(ex.threads, f->threads, sizeof f->threads);
  memcpy(ex.scene->memory, f->copy, ex.scene->size);
  const char *at = f->copy + ex.scene->size;
  for (const ex_span *m = ex.scene->spans; m != NULL && m->at != NULL; m++) {
    memcpy(m->at, at, m->size);
    at += m->size;
  }
  for (int t = 0; t < ex.nthreads; t++) {
    size_t n = (size_t)(stacks[t] + STACK - ex.threads[t].low);
    memcpy(ex.threads[t].low, at, n);
    at += n;
  }
}

static void push(uint32_t number)
{
  if (ex.depth == DEPTH) {
    ex.wrong = "a thread never ends";
    return;
  }
  frame *f = &ex.frames[ex.depth++];
  f->number = number;
  nodes[number].on_way = true;
  f->choice = 0;
  save(f);
}

static void pop(void)
{
  frame *f = &ex.frames[--ex.depth];
  nodes[f->number].on_way = false;
  free(f->copy);
}

// Nothing can happen any more: is that the end?
static void judge_end(void)
{
  for (int t = 0; t < ex.nthreads; t++) {
    if (!ex.threads[t].ended && !ex.threads[t].dead) {
      ex_require(false, "a thread waits for ever");
    }
  }
  if (ex.wrong == NULL && ex.scene->end != NULL) {
    ex.scene->end();
  }
}

static void start(const ex_scene *scene)
{
  ex.scene = scene;
  ex.wrong = NULL;
  ex.depth = 0;
  ex.states = 0;
  ex.nthreads = 0;
  memset(ex.threads, 0, sizeof ex.threads);
  memset(scene->memory, 0, scene->size);
  for (const ex_span *m = scene->spans; m != NULL && m->at != NULL; m++) {
    memset(m->at, 0, m->size);
  }
  memset(slots, 0, sizeof *slots * SLOTS);
  nedges = 0;
  if (scene->begin != NULL) {
    scene->begin();
  }
  while (ex.nthreads < EX_THREADS && scene->threads[ex.nthreads] != NULL) {
    int t = ex.nthreads++;
    ucontext_t *c = &ex.threads[t].context;
    getcontext(c);
    c->uc_stack.ss_sp = stacks[t];
    c->uc_stack.ss_size = STACK;
    c->uc_link = NULL;
    ex.threads[t].low = stacks[t] + STACK;
    makecontext(c, (void (*)(void))enter, 1, t);
  }
  for (int t = 0; t < ex.nthreads; t++) {
    run(t, 0);
  }
  bool fresh;
  push(number_of_state(&fresh));
}

static void print_step(int choice, const ex_site *site)
{
  static const char *const names[] = {"", "(its oldest store reaches memory)", "(dies)", "(its sleep is over)"};
  int t = choice % EX_THREADS, k = choice / EX_THREADS;
  printf("    thread %d: %s%s%s\n", t, k == STEP ? site->function : names[k], k == STEP ? ": " : "",
         k == STEP ? site->text : "");
}

static void print_way(uint32_t number)
{
  if (number > 0) {
    print_way(nodes[number].parent);
    print_step(nodes[number].choice, nodes[number].site);
  }
}

// Takes a choice in the newest state on the way. Returns whether it was one.
static bool go(frame *f, int choice)
{
  const ex_site *site = f->threads[choice % EX_THREADS].site;
  bool fresh = false;
  if (!take(choice)) {
    return false;
  }
  uint32_t number = number_of_state(&fresh);
  if (fresh) {
    nodes[number].parent = f->number;
    nodes[number].choice = (uint8_t)choice;
    nodes[number].site = site;
  }
  if (nedges < EDGES) {
    edges[nedges++] = (edge){f->number, number};
  } else {
    ex.wrong = "there are too many steps";
  }
  bool beyond = ex.scene->beyond != NULL && ex.scene->beyond();
  nodes[number].can_end |= beyond;
  nodes[number].beyond |= beyond;
  if (fresh && ex.wrong == NULL && !beyond) {
    push(number);
  } else if (ex.wrong == NULL) {
    restore(f);
  }
  return true;
}

// What nobody else can see, nor change. That is a store into the thread's own buffer, a fence that has nothing to wait
// for, a look at a word that no other thread writes, a change of one that no other thread uses. Then no other order
// needs to be tried: that goes first. Returns the choice; -1: there is none.
static int find_hidden(void)
{
  for (int t = ex.scene->mortal; t < ex.nthreads; t++) {
    const thread *th = &ex.threads[t];
    const ex_access *a = &th->next;
    if (ex.scene->hides && th->nstores > 0 && is_private(t, th->stores[0].at, false)) {
      return FLUSH * EX_THREADS + t;
    }
    bool hidden = a->op == EX_FENCE || (a->op == EX_STORE && !a->ordered);
    hidden |= ex.scene->hides && a->op < EX_FENCE && is_private(t, a->at, a->op == EX_LOAD);
    if (hidden && can_step(th)) {
      return t;
    }
  }
  return -1;
}

// Goes on from the newest state on the way: to a new one, or back where all has been tried.
static void advance(void)
{
  frame *f = &ex.frames[ex.depth - 1];
  int depth = ex.depth;
  bool any = f->choice > 0;
  int hidden = any ? -1 : find_hidden();
  if (hidden >= 0) {
    f->choice = CHOICES;
    go(f, hidden);
    const node *to = &nodes[edges[nedges - 1].to];
    if (ex.wrong != NULL || ex.depth > depth || !(to->on_way || to->beyond)) {
      return;
    }
    f->choice = 0; // round in a circle, or to the last state: others would never come to their turn
  }
  while (f->choice < CHOICES && ex.wrong == NULL) {
    any |= go(f, f->choice++);
    if (ex.depth > depth) {
      return;
    }
  }
  if (!any) {
    judge_end();
    nodes[f->number].can_end = true;
  }
  if (ex.wrong == NULL) {
    pop();
  }
  if (ex.depth > 0) {
    restore(&ex.frames[ex.depth - 1]);
  }
}

// Can everybody end from every state? Returns a state from which they cannot, or `states`. Numbers fall towards the
// start, so few passes from the end suffice.
static uint32_t find_trap(void)
{
  for (bool more = true; more;) {
    more = false;
    for (uint32_t i = nedges; i-- > 0;) {
      node *from = &nodes[edges[i].from];
      if (!from->can_end && nodes[edges[i].to].can_end) {
        from->can_end = more = true;
      }
    }
  }
  uint32_t n = 0;
  while (n < ex.states && nodes[n].can_end) {
    n++;
  }
  return n;
}

static const char *explore(const ex_scene *scene, bool print)
{
  static const ex_scene *last_scene;
  if (scene != last_scene) {
    memset(words, 0, sizeof words);
    last_scene = scene;
  }
  do { // again, where a thread came late to a word
    words_grew = false;
    start(scene);
    while (ex.depth > 0 && ex.wrong == NULL) {
      advance();
    }
  } while (words_grew && ex.wrong == NULL);
  uint32_t last = ex.depth > 0 ? ex.frames[ex.depth - 1].number : 0;
  if (ex.wrong == NULL && (last = find_trap()) < ex.states) {
    ex.wrong = "threads go on for ever";
  }
  if (ex.wrong != NULL && print) {
    print_way(last);
  }
  while (ex.depth > 0) {
    pop();
  }
  return ex.wrong;
}

static void open_tables(void)
{
  if (slots == NULL) {
    mallopt(M_TRIM_THRESHOLD, 1 << 30); // frames come and go
    slots = calloc(SLOTS, sizeof *slots);
    ex.frames = calloc(DEPTH, sizeof *ex.frames);
    nodes = calloc(STATES, sizeof *nodes);
    edges = calloc(EDGES, sizeof *edges);
    assert_true(slots != NULL && ex.frames != NULL && nodes != NULL && edges != NULL);
  }
}

const char *ex_explore(const ex_scene *scene, unsigned *states)
{
  open_tables();
  const char *wrong = explore(scene, true);
  printf("  %-60s %8u states: %s\n", scene->name, ex.states, wrong != NULL ? wrong : "sound");
  if (states != NULL) {
    *states = ex.states;
  }
  return wrong;
}

// ---- mutants

static bool is_listed(const char *name, const char *const *list)
{
  for (; *list != NULL; list++) {
    if (strcmp(*list, name) == 0) {
      return true;
    }
  }
  return false;
}

// Tries the mutant on the scenes that pass its site, until one fails. Returns whether the outcome is the expected one.
static bool try_mutant(const ex_scene *scenes, unsigned which, const mutant *m, const char *const *harmless)
{
  char name[200];
  const char *wrong = NULL;
  snprintf(name, sizeof name, "%s: %s %s", m->site->function, m->site->text,
           m->how == OMITTED ? "omitted" : "weakened");
  ex.mutant = *m;
  for (unsigned i = 0; which >> i != 0 && wrong == NULL; i++) {
    wrong = which >> i & 1 ? explore(&scenes[i], false) : NULL;
  }
  ex.mutant = (mutant){.how = NONE};
  bool expected = (wrong == NULL) == is_listed(name, harmless);
  printf("  %-60s %s%s\n", name, wrong != NULL ? wrong : "harmless", expected ? "" : ": NOT WHAT WAS EXPECTED");
  return expected;
}

static bool is_skipped(const char *function, const char *const *list)
{
  char name[200];
  snprintf(name, sizeof name, "%s:", function);
  return is_listed(name, list);
}

void ex_mutants(const ex_scene *scenes, size_t n, const char *const *harmless)
{
  bool expected = true;
  open_tables();
  nsites = 0;
  for (size_t i = 0; i < n; i++) {
    scene_bit = 1u << i;
    assert_null(explore(&scenes[i], true));
  }
  scene_bit = 0;      // a mutant of another site may lead here
  int known = nsites; // a mutant may pass others
  for (int i = 0; i < known; i++) {
    ex_op op = site_ops[i];
    if (op == EX_LOAD || strstr(sites[i]->file, "_test.c") != NULL || is_skipped(sites[i]->function, harmless)) {
      continue; // a test's own accesses are no part of what it explores
    }
    if (op != EX_WAIT) {
      expected &= try_mutant(scenes, site_scenes[i], &(mutant){sites[i], OMITTED}, harmless);
    }
    if (op < EX_SET && op != EX_FENCE && (op != EX_STORE || site_ordered[i])) {
      expected &= try_mutant(scenes, site_scenes[i], &(mutant){sites[i], WEAKENED}, harmless);
    }
  }
  assert_true(expected);
}
