// fork_memory_test.c: one rule for memory in a forked child, however it was allocated, registered or shared: the child
// has its own copy of what it writes, may free it, and share it anew; its parent and the parent's peers go on with
// theirs.
#include "harness.h"

enum { RANKS = 2, SIZE = 70000, PAGE = 4096 };

typedef struct block {
  unsigned char *p;
  void *registered;
  ncclWindow_t window;
} block;

// A way to memory: how it is allocated, and what is done with it.
typedef struct way {
  const char *name;
  tuttiMemory_t kind; // of tuttiMallocKind; unknown: another function
  bool nccl;          // ncclMemAlloc
  bool handle;        // a handle for other processes is made
  bool host, comm;    // tuttiHostRegister, ncclCommRegister
  bool window;
} way;

static const way ways[] = {
    {.name = "host memory", .kind = tuttiMemoryHost},
    {.name = "managed memory", .kind = tuttiMemoryManaged},
    {.name = "device memory", .kind = tuttiMemoryDevice},
    {.name = "device memory with a handle", .kind = tuttiMemoryDevice, .handle = true},
    {.name = "device memory in a window", .kind = tuttiMemoryDevice, .window = true},
    {.name = "device memory in a window, with a handle", .kind = tuttiMemoryDevice, .window = true, .handle = true},
    {.name = "host memory in a window", .kind = tuttiMemoryHost, .window = true},
    {.name = "ncclMemAlloc", .nccl = true},
    {.name = "ncclMemAlloc with a handle", .nccl = true, .handle = true},
    {.name = "ncclMemAlloc in a window", .nccl = true, .window = true},
    {.name = "the program's memory"},
    {.name = "the program's memory, registered for the host device", .host = true},
    {.name = "the program's memory, registered", .comm = true},
    {.name = "the program's memory in a window", .window = true},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static bool is_heap(const way *w)
{
  return w->kind != tuttiMemoryUnknown;
}

static void *allocate(const way *w)
{
  void *p = NULL;
  if (is_heap(w)) {
    OK(tuttiMallocKind(&p, SIZE, w->kind, 0));
  } else if (w->nccl) {
    OK(ncclMemAlloc(&p, SIZE));
  } else {
    p = aligned_alloc(PAGE, (SIZE + PAGE - 1) / PAGE * PAGE);
  }
  CHECK(p != NULL, "%s: no memory", w->name);
  return p;
}

static void release(const way *w, void *p)
{
  if (is_heap(w)) {
    OK(tuttiFree(p));
  } else if (w->nccl) {
    OK(ncclMemFree(p));
  } else {
    free(p);
  }
}

static block make(const way *w, ncclComm_t comm, tuttiIpcMemHandle_t *handle)
{
  block b = {.p = allocate(w)};
  memset(b.p, 7, SIZE);
  if (w->host) {
    OK(tuttiHostRegister(b.p, SIZE, 0));
  }
  if (w->comm) {
    OK(ncclCommRegister(comm, b.p, SIZE, &b.registered));
  }
  if (w->window) {
    OK(ncclCommWindowRegister(comm, b.p, SIZE, &b.window, NCCL_WIN_DEFAULT));
  }
  if (w->handle) {
    OK(tuttiIpcGetMemHandle(handle, b.p));
  }
  return b;
}

static void unmake(const way *w, ncclComm_t comm, block *b)
{
  if (w->window) {
    OK(ncclCommWindowDeregister(comm, b->window));
  }
  if (w->comm) {
    OK(ncclCommDeregister(comm, b->registered));
  }
  if (w->host) {
    OK(tuttiHostUnregister(b->p));
  }
  release(w, b->p);
}

static void holds(const way *w, const unsigned char *p, int value, const char *whose)
{
  for (int i = 0; i < SIZE; i++) {
    CHECK(p[i] == value, "%s: %s byte %d is %d, not %d", w->name, whose, i, p[i], value);
  }
}

// Runs fn in a child, and waits for it.
static void in_child(void (*fn)(const way *w, unsigned char *p), const way *w, unsigned char *p)
{
  int status = 0;
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(GENEROUS(6));
    fn(w, p);
    _exit(0);
  }
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "%s: child: status 0x%x", w->name, (unsigned)status);
}

static void sees_and_writes(const way *w, unsigned char *p)
{
  holds(w, p, 1, "the child's child's");
  memset(p, 2, SIZE);
}

// Opens what the child has shared: `p` holds the handle.
static void opens_shared(const way *w, unsigned char *p)
{
  tuttiIpcMemHandle_t h;
  unsigned char *seen;
  memcpy(&h, p, sizeof h);
  OK(tuttiIpcOpenMemHandle((void **)&seen, &h));
  holds(w, seen, 1, "the opened memory's");
  memset(seen, 3, SIZE);
  OK(tuttiIpcCloseMemHandle(seen));
}

static void shares_anew(const way *w, unsigned char *p)
{
  tuttiIpcMemHandle_t h;
  if (w->nccl || w->kind == tuttiMemoryDevice) {
    OK(tuttiIpcGetMemHandle(&h, p));
    in_child(opens_shared, w, (unsigned char *)&h);
    holds(w, p, 3, "the child's shared");
  }
}

static void child_body(const way *w, unsigned char *p)
{
  holds(w, p, 7, "the child's");
  memset(p, 1, SIZE);
  in_child(sees_and_writes, w, p);
  holds(w, p, 1, "the child's");
  shares_anew(w, p);
  release(w, p);
  unsigned char *own = allocate(w);
  memset(own, 4, SIZE);
  release(w, own);
}

// What a peer has opened before the fork, and what its own child writes into it.
static void writes_five(const way *w, unsigned char *p)
{
  (void)w;
  p[0] = 5;
}

static tuttiIpcMemHandle_t exchange_handles(int rank, const tuttiIpcMemHandle_t *mine)
{
  tuttiIpcMemHandle_t other;
  enum { WORDS = sizeof other / sizeof(uint64_t) };
  uint64_t words[WORDS];
  memcpy(words, mine, sizeof words);
  for (int i = 0; i < WORDS; i++) {
    the_board->word[rank * WORDS + i] = words[i];
  }
  meet(RANKS);
  for (int i = 0; i < WORDS; i++) {
    words[i] = the_board->word[(1 - rank) * WORDS + i];
  }
  meet(RANKS);
  memcpy(&other, words, sizeof other);
  return other;
}

// Both ranks have such memory, and see each other's where it has a handle.
static void try_way(const way *w, int rank, ncclComm_t comm, cudaStream_t stream)
{
  tuttiIpcMemHandle_t handle = {.reserved = {0}};
  unsigned char *theirs = NULL;
  block b = make(w, comm, &handle);
  if (w->handle) {
    handle = exchange_handles(rank, &handle);
    OK(tuttiIpcOpenMemHandle((void **)&theirs, &handle));
  }
  in_child(child_body, w, b.p);
  holds(w, b.p, 7, "the parent's");
  meet(RANKS);
  if (w->handle) {
    holds(w, theirs, 7, "the peer's");
    in_child(writes_five, w, theirs); // opened memory stays the owner's, also in a child
    CHECK(theirs[0] == 5, "%s: a child's write into opened memory is not seen", w->name);
    meet(RANKS);
    CHECK(b.p[0] == 5, "%s: a peer's child's write is not seen", w->name);
    OK(tuttiIpcCloseMemHandle(theirs));
    meet(RANKS);
    b.p[0] = 7;
  }
  OK(ncclAllReduce(b.p, b.p, SIZE, ncclUint8, ncclSum, comm, stream));
  OK(tuttiStreamSynchronize(stream));
  holds(w, b.p, 14, "the sum's");
  meet(RANKS);
  unmake(w, comm, &b);
}

static void body(int rank, void *arg)
{
  cudaStream_t stream;
  (void)arg;
  putenv((char *)(uintptr_t) "NCCL_HOST_REGISTER_MAP=1");
  ncclComm_t comm = join_processes(0, RANKS, rank);
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_NON_BLOCKING));
  for (int i = 0; i < WAYS; i++) {
    try_way(&ways[i], rank, comm, stream);
  }
  OK(tuttiStreamDestroy(stream));
  OK(ncclCommDestroy(comm));
}

static void a_child_has_its_own_copy(void **state)
{
  (void)state;
#ifdef TT_TSAN // no threads there after a fork
  (void)body;
  skip();
#else
  PROCESSES(RANKS, 60, body, NULL);
#endif
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_has_its_own_copy)};
  return RUN_TESTS("fork_memory", tests, argc, argv);
}
