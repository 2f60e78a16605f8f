// cuda_matrix_test.c: ranks on GPUs give the bits that ranks on the host give: functions, types, operations (with
// averages, factors, and Tutti's own), numbers of ranks, algorithms and protocols, counts, buffers in place and
// unaligned, ranks in one process, in threads, in processes, with time slices, and GPUs and hosts together, in the
// modes of the driver for tests, each with a seed of its own. Both sides make the same calls with the same selection of
// an algorithm, so that the order of a reduction is the same one, and every byte of what they leave is compared.
//
//   cuda_matrix_test          a design in which every pair of values occurs (cover.h)
//   cuda_matrix_test full     every function × type × operation × number of ranks × algorithm, the rest drawn by lot
//
// CUDA_MATRIX_SEED=N runs one world alone.
#include "cover.h"
#include "cuda_modes.h"
#include "reference.h"

#include "base/util.h"
#include "coll/coll.h"
#include "comm/comm.h"
#include "comm/init.h"
#include "device/cuda/gpu.h"

enum { FUNC, TYPE, OP, RANKS, WAY, COUNT, PLACE, OFFSETS, HOME, MODE, PARAMS };
enum { OWN_OPS = 6, MOST_RANKS = 8, WAYS = 32, KEEP = 128 };
enum { ONE_PROCESS, THREADS, PROCESSES_APART, PROCESSES_SHARED, MIXED, HOMES };

// Sanitizers make the driver's machine up to twenty times slower: fewer worlds, and nothing large.
#if defined TT_TSAN || defined TT_ASAN
enum { WORLD_STEP = 9, LARGE_BYTES = 20000 };
#else
enum { WORLD_STEP = 1, LARGE_BYTES = 100000 };
#endif
enum { MOST_BYTES = 4 << 20, AREA = MOST_BYTES + 4 * GUARD, CASES = 1 << 17, LARGEST = 4 };

static const struct home {
  int processes;
  const char *modes; // of the driver, more than the mode has
} homes[HOMES] = {[ONE_PROCESS] = {1, ""},
                  [THREADS] = {1, ""},
                  [PROCESSES_APART] = {MOST_RANKS, ""},
                  [PROCESSES_SHARED] = {3, ",slices"}, // with several ranks each
                  [MIXED] = {MOST_RANKS, ""}};

static const struct mode {
  const char *text;
  bool spare; // no two streams share a hardware queue
  bool apart; // the GPUs do not reach each other
} modes[] = {{"queues=32", true, false},
             {"queues=1", false, false},
             {"queues=1,blocking", false, false},
             {"order=random,stores,stale,step=500", false, false},
             {"devices=3,order=random", false, false},
             {"devices=2,queues=32,stores,stale", true, false},
             {"devices=3,queues=32,peers=none", true, true},
             {"resident,devices=8,lines,order=random,stores,stale", true, false}}; // LL128

enum { MODES = TT_COUNT(modes), LL128_MODE = MODES - 1 };

static struct way {
  const tt_algorithm *a; // NULL: what the library chooses
  char text[32];
} ways[WAYS];
static int nways;

static const tt_func func_of[FUNCS] = {TT_FUNC_ALLREDUCE, TT_FUNC_REDUCESCATTER, TT_FUNC_REDUCE,
                                       TT_FUNC_BROADCAST, TT_FUNC_ALLGATHER,     TT_FUNC_ALLTOALL,
                                       TT_FUNC_GATHER,    TT_FUNC_SCATTER,       TT_FUNC_SEND};
static const ncclRedOp_t own_ops[OWN_OPS] = {tuttiBitAnd,     tuttiBitOr,     tuttiBitXor,
                                             tuttiLogicalAnd, tuttiLogicalOr, tuttiLogicalXor};

static cover_case *cases;
static size_t ncases;

// What the ranks of the host have left: of each case and rank. Shared by all processes.
typedef struct result {
  uint64_t print[MOST_RANKS];
  unsigned char begin[MOST_RANKS][KEEP];
} result;

static result *results;

// ---- What may be tried ----

static void list_ways(void)
{
  int n;
  const tt_algorithm *all = tt_algorithms(&n);
  nways = 1;
  for (int i = 0; i < n; i++) {
    for (int simple = 0; simple < 2 && !all[i].in_network; simple++) {
      if (simple == 1 || all[i].needs == 0) {
        struct way *w = &ways[nways++];
        w->a = &all[i];
        snprintf(w->text, sizeof w->text, "%s_%s", all[i].id, simple ? "SIMPLE" : "LL");
      }
    }
  }
}

static bool known(const cover_case *c, int a, int b)
{
  return c->of[a] != COVER_UNKNOWN && c->of[b] != COVER_UNKNOWN;
}

static int ranks_of(const cover_case *c)
{
  return c->of[RANKS] + 1;
}

// Do the bits depend on the order in which the ranks are combined?
static bool order_matters(const cover_case *c)
{
  const int op = c->of[OP];
  return reduces(c->of[FUNC]) && formats[c->of[TYPE]].ebits > 0 && op != ncclMax && op != ncclMin && op < OPS;
}

// Do ranks use each other's buffers? Resident ones of several processes do not. COVER_UNKNOWN: as far as is known.
static bool has_access(int home, int mode)
{
  const bool apart = mode != COVER_UNKNOWN && modes[mode].apart;
  return home != MIXED && !apart && (mode != LL128_MODE || home == COVER_UNKNOWN || home <= THREADS);
}

static bool way_suits(const cover_case *c)
{
  const tt_algorithm *a = ways[c->of[WAY]].a;
  const bool reads = a != NULL && a->needs != 0;
  if (c->of[FUNC] != COVER_UNKNOWN && a != NULL &&
      (!(a->funcs >> func_of[c->of[FUNC]] & 1) || c->of[FUNC] > ALLGATHER)) {
    return false; // the others have no selection
  }
  if (reads && !has_access(c->of[HOME], c->of[MODE])) {
    return false;
  }
  // By itself the library may choose another algorithm on a GPU than on a host.
  return a != NULL || !known(c, FUNC, TYPE) || !known(c, OP, RANKS) || ranks_of(c) <= 2 || !order_matters(c);
}

static bool is_allowed(const cover_case *c)
{
  if (known(c, FUNC, OP) && !reduces(c->of[FUNC]) && c->of[OP] != 0) {
    return false;
  }
  if (known(c, TYPE, OP) && formats[c->of[TYPE]].ebits > 0 && c->of[OP] >= OPS && c->of[OP] < OPS + 3) {
    return false; // bits of integers
  }
  if (known(c, FUNC, PLACE) && c->of[FUNC] == RING && c->of[PLACE] == 1) {
    return false;
  }
  if (known(c, HOME, MODE) && c->of[HOME] == THREADS && !modes[c->of[MODE]].spare) {
    return false;
  }
  if (known(c, HOME, RANKS) && c->of[HOME] == MIXED && ranks_of(c) == 1) {
    return false;
  }
  return c->of[WAY] == COVER_UNKNOWN || way_suits(c);
}

static const char *text_of(const cover_case *c)
{
  static _Thread_local char text[256];
  static const char *const names[HOMES] = {"one process", "threads", "processes", "three processes", "with hosts"};
  snprintf(text, sizeof text, "%s %s op %d, %d ranks, %s, count %d, %s, offsets %d, %s, mode %d",
           func_name[c->of[FUNC]], formats[c->of[TYPE]].name, c->of[OP], ranks_of(c),
           c->of[WAY] == 0 ? "any" : ways[c->of[WAY]].text, c->of[COUNT], c->of[PLACE] ? "in place" : "out of place",
           c->of[OFFSETS], names[c->of[HOME]], c->of[MODE]);
  return text;
}

// ---- A case on some ranks ----

static size_t count_of(const cover_case *c)
{
  static const size_t counts[] = {0, 1, 13, 1009, 4099};
  const sample s = {.func = c->of[FUNC], .n = ranks_of(c)};
  const size_t blocks = in_blocks(&s) * out_blocks(&s), bytes = c->of[COUNT] == 5 ? LARGE_BYTES : MOST_BYTES;
  if (c->of[COUNT] < (int)TT_COUNT(counts)) {
    const size_t n = counts[c->of[COUNT]];
    return WORLD_STEP > 1 ? TT_MIN(n, 1009u) : n;
  }
  return bytes / (blocks * (size_t)formats[c->of[TYPE]].size) - 1;
}

// Where and how ranks run.
typedef struct setting {
  int home, mode;
} setting;

// A rank of a communicator, here.
typedef struct seat {
  int rank, device;
  bool host;
  ncclComm_t comm;
  cudaStream_t stream;
  char *memory; // two areas, then a factor
  // Of a call:
  char *in, *out;
  size_t in_bytes, out_bytes;
  uint64_t input; // its fingerprint
  ncclRedOp_t op;
} seat;

static uint64_t print_of(const char *data, size_t bytes)
{
  uint64_t h = 14695981039346656037ull, word;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    memcpy(&word, data + i, 8);
    h = (h ^ word) * 1099511628211ull;
    h ^= h >> 29;
  }
  for (; i < bytes; i++) {
    h = (h ^ (unsigned char)data[i]) * 1099511628211ull;
  }
  return h;
}

// Zeros, subnormals, odd mantissas, the largest numbers, infinities, NaN; numbers of like size; any bits.
static uint64_t input_bits(int type, uint32_t seed)
{
  const format *f = &formats[type];
  const uint32_t h = mix(seed);
  const uint64_t any = (uint64_t)mix(h + 1) << 32 | mix(h + 2);
  if (f->ebits == 0 || h % 8 == 0) {
    return any;
  }
  const uint64_t one = power_of_two(0, f, 0, 0), least = (uint64_t)1 << f->mbits,
                 inf = least * (((uint64_t)1 << f->ebits) - 1);
  const uint64_t special[] = {0, 1, least - 1, least, least + 1, one, one + 1, inf - 1, inf, inf + least - 1};
  return h % 8 == 1 ? special[h / 8 % 10] | (uint64_t)(h >> 31) << (f->ebits + f->mbits)
                    : power_of_two((int)(h >> 8) % 4 - 2, f, (int)(h >> 31), any & (least - 1));
}

// Where the buffers lie: apart, or one in the other as the function has it.
static void lay_out(const cover_case *c, size_t index, seat *s)
{
  const sample of = {.func = c->of[FUNC], .n = ranks_of(c)};
  const size_t block = count_of(c) * (size_t)formats[c->of[TYPE]].size;
  const uint32_t h = mix((uint32_t)index * 8 + (uint32_t)s->rank);
  const size_t in_at = c->of[OFFSETS] == 0 ? 0 : h % 16, out_at = c->of[OFFSETS] == 1 ? in_at : h / 16 % 16;
  s->in_bytes = in_blocks(&of) * block;
  s->out_bytes = out_blocks(&of) * block;
  CHECK(TT_MAX(s->in_bytes, s->out_bytes) <= MOST_BYTES, "%s: too large", text_of(c));
  s->in = s->memory + GUARD + in_at;
  s->out = s->memory + AREA + GUARD + (c->of[OFFSETS] == 0 ? 0 : out_at);
  if (c->of[PLACE] == 1 && s->out_bytes >= s->in_bytes) {
    s->in = s->out + (of.func == ALLGATHER || of.func == GATHER ? (size_t)s->rank * block : 0);
  } else if (c->of[PLACE] == 1) {
    s->out = s->in + (size_t)s->rank * block;
  }
}

static void make_op(const cover_case *c, seat *s)
{
  const int op = c->of[OP];
  s->op = op >= OPS ? own_ops[op - OPS] : (ncclRedOp_t)op;
  if (op == PREMUL_HOST || op == PREMUL_DEVICE) {
    void *factor = s->memory + 2 * (size_t)AREA;
    put(factor, 0, formats[c->of[TYPE]].size, encode(c->of[TYPE], s->rank % 3 + 1));
    OK(ncclRedOpCreatePreMulSum(&s->op, factor, (ncclDataType_t)c->of[TYPE],
                                op == PREMUL_HOST ? ncclScalarHostImmediate : ncclScalarDevice, s->comm));
  }
}

static void prepare_case(const cover_case *c, size_t index, seat *s)
{
  const int size = formats[c->of[TYPE]].size;
  lay_out(c, index, s);
  memset(s->in - GUARD, GUARD_BYTE, s->in_bytes + 2 * (size_t)GUARD);
  memset(s->out - GUARD, GUARD_BYTE, s->out_bytes + 2 * (size_t)GUARD);
  for (size_t i = 0; i < s->in_bytes / (size_t)size; i++) {
    put(s->in, i, size, input_bits(c->of[TYPE], (uint32_t)(i * MOST_RANKS + (size_t)s->rank + index * 7919)));
  }
  s->input = print_of(s->in, s->in_bytes);
  make_op(c, s);
}

static int root_of(const cover_case *c, size_t index)
{
  return (int)(mix((uint32_t)index) % (uint32_t)ranks_of(c));
}

static ncclResult_t call_case(const cover_case *c, size_t index, const seat *s)
{
  const ncclDataType_t t = (ncclDataType_t)c->of[TYPE];
  const int n = ranks_of(c), root = root_of(c, index), next = (s->rank + 1) % n, before = (s->rank + n - 1) % n;
  const size_t count = count_of(c);
  ncclCollConfig_t how = NCCL_COLLCONFIG_INITIALIZER;
  how.algSelection = c->of[WAY] == 0 ? NULL : ways[c->of[WAY]].text;
  switch (c->of[FUNC]) {
  case ALLREDUCE: return ncclAllReduceConfig(s->in, s->out, count, t, s->op, s->comm, s->stream, &how);
  case REDUCESCATTER: return ncclReduceScatterConfig(s->in, s->out, count, t, s->op, s->comm, s->stream, &how);
  case REDUCE: return ncclReduceConfig(s->in, s->out, count, t, s->op, root, s->comm, s->stream, &how);
  case BROADCAST: return ncclBroadcastConfig(s->in, s->out, count, t, root, s->comm, s->stream, &how);
  case ALLGATHER: return ncclAllGatherConfig(s->in, s->out, count, t, s->comm, s->stream, &how);
  case ALLTOALL: return ncclAlltoAllConfig(s->in, s->out, count, t, s->comm, s->stream, &how);
  case GATHER: return ncclGatherConfig(s->in, s->out, count, t, root, s->comm, s->stream, &how);
  case SCATTER: return ncclScatterConfig(s->in, s->out, count, t, root, s->comm, s->stream, &how);
  default: break;
  }
  OK(ncclSend(s->in, count, t, next, s->comm, s->stream));
  return ncclRecv(s->out, count, t, before, s->comm, s->stream);
}

static void wait_seat(const seat *s)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  ncclResult_t async = ncclSuccess;
  if (s->host) {
    OK(tuttiStreamSynchronize(s->stream));
  } else {
    OK(tt_gpu_enter(s->device));
    const CUresult error = cu->StreamSynchronize((CUstream)s->stream);
    CHECK(error == CUDA_SUCCESS, "rank %d: the driver's error %d", s->rank, (int)error);
    tt_gpu_leave();
  }
  OK(ncclCommGetAsyncError(s->comm, &async));
  CHECK(async == ncclSuccess, "rank %d: %d: %s", s->rank, (int)async, ncclGetLastError(s->comm));
}

// The result of the case's rank: compares it with the host's, or keeps it where this is the host.
static void check_case(const cover_case *c, size_t index, const seat *s, bool keeps)
{
  const int f = c->of[FUNC], r = s->rank;
  result *want = &results[index];
  const size_t head = TT_MIN(s->out_bytes, (size_t)KEEP);
  const uint64_t print = print_of(s->out, s->out_bytes);
  if (c->of[PLACE] == 0 || s->in_bytes > s->out_bytes) { // else it is part of the output
    check_guards(s->in, s->in_bytes, text_of(c));
  }
  if (c->of[PLACE] == 0 || s->in_bytes <= s->out_bytes) {
    check_guards(s->out, s->out_bytes, text_of(c));
  }
  CHECK(c->of[PLACE] == 1 || print_of(s->in, s->in_bytes) == s->input, "%s: rank %d: its input", text_of(c), r);
  if (c->of[PLACE] == 1 && (f == REDUCE || f == GATHER) && r != root_of(c, index)) {
    return; // what the others' outputs hold is not promised
  }
  if (keeps) {
    want->print[r] = print;
    memcpy(want->begin[r], s->out, head);
    return;
  }
  for (size_t i = 0; i < head; i++) {
    CHECK((unsigned char)s->out[i] == want->begin[r][i], "case %zu, %s: rank %d, byte %zu: 0x%02x, not 0x%02x", index,
          text_of(c), r, i, (unsigned char)s->out[i], want->begin[r][i]);
  }
  CHECK(print == want->print[r], "case %zu, %s: rank %d: other bits", index, text_of(c), r);
}

static void run_case(size_t index, seat *seats, int n, bool keeps)
{
  const cover_case *c = &cases[index];
  for (int i = 0; i < n; i++) {
    prepare_case(c, index, &seats[i]);
  }
  OK(ncclGroupStart());
  for (int i = 0; i < n; i++) {
    const ncclResult_t res = call_case(c, index, &seats[i]);
    CHECK(res == ncclSuccess, "case %zu, %s: rank %d: %d", index, text_of(c), seats[i].rank, (int)res);
  }
  const ncclResult_t res = ncclGroupEnd();
  CHECK(res == ncclSuccess, "case %zu, %s: %d", index, text_of(c), (int)res);
  for (int i = 0; i < n; i++) {
    wait_seat(&seats[i]);
  }
  for (int i = 0; i < n; i++) {
    check_case(c, index, &seats[i], keeps);
    if (c->of[OP] == PREMUL_HOST || c->of[OP] == PREMUL_DEVICE) {
      OK(ncclRedOpDestroy(seats[i].op, seats[i].comm));
    }
  }
}

// ---- Ranks on the host, which say what is right ----

static bool is_in(const cover_case *c, const setting *w, int n)
{
  return c->of[HOME] == w->home && c->of[MODE] == w->mode && (n == 0 || ranks_of(c) == n);
}

static bool any_case(const setting *w, int n)
{
  size_t i = 0;
  while (i < ncases && !is_in(&cases[i], w, n)) {
    i++;
  }
  return i < ncases;
}

static int process_of(const setting *w, int rank, int n)
{
  return rank * homes[w->home].processes / n;
}

static bool on_host(const setting *w, int rank, int n)
{
  return w->home == MIXED && process_of(w, rank, n) % 2 == 1;
}

static void take_host_memory(seat *s)
{
  s->memory = malloc(2 * (size_t)AREA + 16);
  CHECK(s->memory != NULL, "no memory");
}

// A device that does all as the host does, but says that it is a GPU: so rings and trees are those of GPUs.
// Beside it, one of the same kind that says nothing.
static tt_device_ops seated, beside;

static void beside_identify(int device, tt_device_id *out)
{
  tt_device_host.identify(device, out);
  strcpy(out->kind, "seated");
}

static void seated_identify(int device, tt_device_id *out)
{
  tt_device_id gpu;
  tt_gpu_identify(device % tt_gpu_count(), &gpu);
  beside_identify(device, out);
  memcpy(out->bus_id, gpu.bus_id, sizeof out->bus_id);
  out->sm = gpu.sm;
}

typedef struct reference {
  const setting *w;
  seat *seats;
  int n;
} reference;

static void join_reference(int rank, void *arg)
{
  const reference *f = arg;
  ncclComm_t comm = NULL;
  const bool host = on_host(f->w, rank, f->n);
  const tt_init_args args = {.id = shared_id(f->n, rank), .nranks = f->n, .rank = rank, .device = host ? 0 : rank};
  OK(tuttiSetDevice(args.device));
  OK(tt_comm_new(host ? &beside : &seated, &comm));
  OK(tt_config_read(NULL, NULL, &comm->config));
  tt_comm_name(comm, &args);
  OK(tt_comm_init(comm, &args));
  f->seats[rank].comm = comm;
}

static void refer_size(const setting *w, seat *seats, int n)
{
  reference f = {w, seats, n};
  run_threads(n, join_reference, &f);
  for (size_t i = 0; i < ncases; i++) {
    if (is_in(&cases[i], w, n)) {
      run_case(i, seats, n, true);
    }
  }
  for (int i = 0; i < n; i++) {
    OK(ncclCommDestroy(seats[i].comm));
  }
}

static void reference_body(int process, void *arg)
{
  const setting *w = arg;
  seat seats[MOST_RANKS] = {{0}};
  (void)process;
  seated = beside = tt_device_host;
  seated.name = beside.name = "seated";
  beside.identify = beside_identify;
  seated.identify = seated_identify;
  for (int i = 0; i < MOST_RANKS; i++) {
    seats[i] = (seat){.rank = i, .host = true};
    take_host_memory(&seats[i]);
    OK(tuttiSetDevice(i));
    OK(tuttiStreamCreate(&seats[i].stream, TUTTI_STREAM_DEFAULT));
  }
  for (int n = 1; n <= MOST_RANKS; n++) {
    if (any_case(w, n)) {
      refer_size(w, seats, n);
    }
  }
  for (int i = 0; i < MOST_RANKS; i++) {
    OK(tuttiStreamDestroy(seats[i].stream));
    free(seats[i].memory);
  }
}

// ---- Ranks on GPUs ----

// The ranks that a process has, in communicators of one size after the other.
typedef struct world_seats {
  setting at;
  int process;
  seat seats[MOST_RANKS];
  bool open[MOST_RANKS]; // they have streams and memory
} world_seats;

static void open_seat(world_seats *w, int rank)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  seat *s = &w->seats[rank];
  CUdeviceptr memory = 0;
  CUstream stream;
  if (w->open[rank]) {
    return;
  }
  w->open[rank] = true;
  *s = (seat){.rank = rank, .host = w->at.home == MIXED && w->process % 2 == 1};
  if (s->host) {
    take_host_memory(s);
    OK(tuttiStreamCreate(&s->stream, TUTTI_STREAM_DEFAULT));
    return;
  }
  CHECK(cu != NULL, "rank %d: no driver", rank);
  s->device = rank % tt_gpu_count();
  OK(tt_gpu_enter(s->device));
  CHECK(cu->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS &&
            cu->MemAlloc(&memory, 2 * (size_t)AREA + 16) == CUDA_SUCCESS,
        "rank %d: no memory on its GPU", rank);
  tt_gpu_leave();
  s->stream = (cudaStream_t)stream;
  s->memory = (char *)(uintptr_t)memory; // NOLINT(performance-no-int-to-ptr)
}

static void close_seat(const seat *s)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  if (s->host) {
    OK(tuttiStreamDestroy(s->stream));
    free(s->memory);
    return;
  }
  OK(tt_gpu_enter(s->device));
  CHECK(cu->StreamDestroy((CUstream)s->stream) == CUDA_SUCCESS &&
            cu->MemFree((CUdeviceptr)(uintptr_t)s->memory) == CUDA_SUCCESS,
        "rank %d: its stream and memory do not go", s->rank);
  tt_gpu_leave();
}

static void create_comm(seat *s, int n)
{
  if (!s->host) {
    OK(tt_gpu_enter(s->device));
  }
  OK(ncclCommInitRank(&s->comm, n, the_board->ids[n], s->rank));
  if (!s->host) {
    tt_gpu_leave();
  }
}

// The world's cases of n ranks, of which this thread has those from `first` on, before `last`.
static void run_cases(world_seats *w, int n, int first, int last)
{
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    create_comm(&w->seats[r], n);
  }
  OK(ncclGroupEnd());
  for (size_t i = 0; i < ncases; i++) {
    if (is_in(&cases[i], &w->at, n)) {
      run_case(i, &w->seats[first], last - first, false);
    }
  }
  for (int r = first; r < last; r++) {
    OK(ncclCommDestroy(w->seats[r].comm));
  }
}

typedef struct thread_world {
  world_seats *w;
  int n;
} thread_world;

static void thread_body(int rank, void *arg)
{
  const thread_world *t = arg;
  run_cases(t->w, t->n, rank, rank + 1);
}

// The cases of n ranks, where this process has any of them.
static void run_size(world_seats *w, int n)
{
  int first = 0, last = 0;
  for (int r = n - 1; r >= 0; r--) {
    const bool here = process_of(&w->at, r, n) == w->process;
    first = here ? r : first;
    last = here && last == 0 ? r + 1 : last;
  }
  for (int r = first; r < last; r++) {
    open_seat(w, r);
  }
  if (last > 0) {
    shared_id(n, w->process);
  }
  if (last > 0 && w->at.home == THREADS) {
    run_threads(n, thread_body, &(thread_world){w, n});
  } else if (last > 0) {
    run_cases(w, n, first, last);
  }
}

static void world_body(int process, void *arg)
{
  world_seats *w = arg;
  w->process = process;
  for (int n = 1; n <= MOST_RANKS; n++) {
    if (any_case(&w->at, n)) {
      run_size(w, n);
    }
  }
  for (int r = 0; r < MOST_RANKS; r++) {
    if (w->open[r]) {
      close_seat(&w->seats[r]);
    }
  }
}

// ---- The design ----

static const int of_each[PARAMS] = {FUNCS, ncclNumTypes, OPS + OWN_OPS, MOST_RANKS, 0, 6, 2, 3, HOMES, MODES};

// A few of several MiB.
static void add_largest(void)
{
  for (int i = 0; i < LARGEST && WORLD_STEP == 1; i++) {
    cover_case c = {{[FUNC] = ALLREDUCE, [TYPE] = ncclFloat32, [OP] = ncclSum, [RANKS] = 1, [WAY] = 0, [COUNT] = 6}};
    c.of[FUNC] = (int8_t)(i % 2 == 0 ? ALLREDUCE : ALLGATHER);
    c.of[TYPE] = (int8_t)(i < 2 ? ncclFloat32 : ncclBfloat16);
    c.of[OFFSETS] = (int8_t)(i % 3);
    c.of[HOME] = (int8_t)(i == 0 ? ONE_PROCESS : i == 1 ? PROCESSES_APART : i == 2 ? PROCESSES_SHARED : MIXED);
    cases[ncases++] = c;
  }
}

static void make_pairs(const int *values)
{
  static cover_plan plan;
  plan = (cover_plan){.params = PARAMS, .values = values, .allowed = is_allowed, .draw = 1};
  ncases = cover_pairs(&plan, cases, CASES);
}

// All of the first five parameters.
static void make_product(const int *values)
{
  static cover_plan plan;
  cover_case c;
  plan = (cover_plan){.params = PARAMS, .values = values, .allowed = is_allowed, .draw = 1};
  size_t all = 1;
  for (int k = 0; k <= WAY; k++) {
    all *= (size_t)values[k];
  }
  for (size_t i = 0; i < all && ncases < CASES - LARGEST; i++) {
    size_t rest = i;
    memset(c.of, COVER_UNKNOWN, sizeof c.of);
    for (int k = 0; k <= WAY; rest /= (size_t)values[k++]) {
      c.of[k] = (int8_t)(rest % (size_t)values[k]);
    }
    if (is_allowed(&c)) {
      const uint32_t h = cover_draw(&plan, 256); // mostly little
      c.of[COUNT] = (int8_t)(h < 25 ? 0 : h < 75 ? 1 : h < 150 ? 2 : h < 245 ? 3 : h < 255 ? 4 : 5);
      if (cover_fill(&plan, &c)) {
        cases[ncases++] = c;
      }
    }
  }
}

// Of the functions whose calls have no selection, every second world takes the one algorithm, or the other.
static const char *algorithm_of(const setting *w, int seed)
{
  return seed % 2 == 0 && has_access(w->home, w->mode)
             ? "NCCL_ALGO=AlltoAll:Direct;Gather:Direct;Scatter:Direct;Send:Direct;Recv:Direct"
             : "NCCL_ALGO=AlltoAll:Pairwise;Gather:Linear;Scatter:Linear;Send:Linear;Recv:Linear";
}

// Returns how many processes have failed.
static int run_setting(setting at, int seed)
{
  static world_seats w;
  char text[128];
  const int seconds = ncases > 2000 ? 900 : 60;
  w = (world_seats){.at = at};
  snprintf(text, sizeof text, "%s%s,seed=%d", modes[at.mode].text, homes[at.home].modes, seed);
  set_modes(text, "matrix");
  if (at.mode == LL128_MODE) { // selections choose among all
    setenv("NCCL_PROTO", "LL128,Simple", 1);
  } else {
    unsetenv("NCCL_PROTO");
  }
  const run host = {.n = 1, .seconds = seconds, .fn = reference_body, .arg = &at, .env = ENV("NCCL_HOST_DEVICES=64")};
  const run gpus = {.n = homes[at.home].processes,
                    .seconds = seconds,
                    .fn = world_body,
                    .arg = &w,
                    .env = ENV(algorithm_of(&at, seed))};
  const int failed = run_processes(&host);
  return failed != 0 ? failed : run_processes(&gpus);
}

int main(int argc, char **argv)
{
  const char *one = getenv("CUDA_MATRIX_SEED");
  int failed = 0, worlds = 0, values[PARAMS];
  use_driver();
  list_ways();
  memcpy(values, of_each, sizeof values);
  values[WAY] = nways;
  cases = calloc(CASES, sizeof *cases);
  results =
      mmap(NULL, CASES * sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(cases != NULL && results != MAP_FAILED, "no memory");
  if (argc > 1 && strcmp(argv[1], "full") == 0) {
    make_product(values);
  } else {
    make_pairs(values);
  }
  add_largest();
  printf("%zu cases\n", ncases);
  for (int k = 0; k < HOMES * MODES; k++) {
    const setting at = {.home = k % HOMES, .mode = k / HOMES};
    const int seed = k + 1;
    if (any_case(&at, 0) && (one != NULL ? atoi(one) == seed : worlds++ % WORLD_STEP == 0)) {
      failed += run_setting(at, seed) != 0;
    }
  }
  drop_devices(getpid());
  printf("%d of %d worlds have failed\n", failed, worlds);
  return failed != 0;
}
