// ptx_priv.h: what the files of the PTX machine share: a module as it is parsed, a run as it is executed.
#ifndef TUTTI_TESTS_CUDASIM_PTX_PRIV_H
#define TUTTI_TESTS_CUDASIM_PTX_PRIV_H

#include "alu_quick.h"
#include "ptx.h"

enum {
  PTX_WARP = 32,
  PTX_BARRIERS = 16,
  PTX_VECTOR = 8,
  PTX_CALLS = 16,
  PTX_FRAME_ALIGN = 32,
  PTX_SEEN = 8,
  PTX_BUCKETS = 64
};

enum ptx_space { PTX_GENERIC, PTX_GLOBAL, PTX_CONST, PTX_SHARED, PTX_LOCAL, PTX_PARAM };
enum ptx_sem { PTX_WEAK, PTX_RELAXED, PTX_ACQUIRE, PTX_RELEASE, PTX_ACQ_REL, PTX_SC };
enum ptx_scope { PTX_CTA, PTX_GPU, PTX_SYS };

struct ptx_thread;
struct ptx_cta;
struct ptx_ins;

// What executes one instruction. The thread's pc stands at the next instruction already. False when the thread cannot
// go on now: it waits, has ended, has failed, or wants others to have their turn.
typedef bool ptx_exec(struct ptx_thread *thread, const struct ptx_ins *ins);

// Instructions that the interpreter's loop knows by number; the others go through ptx_ins.exec.
#define PTX_OP_QUICK(name) PTX_OP_##name,
enum ptx_op {
  PTX_OP_EXEC,
  PTX_OP_ALU,
  PTX_OP_ALU_PAIR,
  PTX_OP_MOVE,
  PTX_OP_BRANCH,
  PTX_OP_setp,
  ALU_QUICK(PTX_OP_QUICK)
};

// An access of memory. The address is the first input plus offset, plus the frame's base where framed.
struct ptx_mem {
  uint8_t space, sem, scope;
  uint8_t bytes, count; // of an element; elements
  uint8_t reg_bytes;    // of the registers that are loaded: what is shorter is extended to them
  bool extend_sign, framed, no_coherence;
  int64_t offset;
};

// An atomic operation; with alu the new value is alu(old, operand).
struct ptx_atom {
  struct ptx_mem mem;
  uint8_t kind; // of atomic.c
  bool result;
  struct ptx_alu alu;
};

// One value that a call hands over: from the caller to the callee (argument) or back.
struct ptx_copy {
  bool from_reg, to_reg;
  uint32_t from, to; // slot, or offset in the frame
  uint32_t bytes;
};

struct ptx_call {
  const struct ptx_kernel *callee;
  struct ptx_copy *copies; // arguments, then results
  int arguments, results;
};

// Operations between threads.
struct ptx_sync {
  uint8_t kind;              // of barrier.c and warp.c
  uint8_t mode;              // the reduction, the shuffle
  bool aligned;              // all threads of a warp must execute the same instruction
  bool has_threads;          // a barrier with a count of threads
  const struct ptx_alu *alu; // of redux
};

struct ptx_ins {
  uint8_t op;
  bool negated;       // the guard
  bool wide;          // operands have registers wider than the operation
  uint8_t ins, outs;  // used below
  uint8_t out_extend; // wide: bytes of the register to which the result's sign is extended, 0: none
  int32_t guard;      // slot, -1: none
  uint16_t in[PTX_VECTOR + 1], out[PTX_VECTOR];
  uint32_t line, text; // in the module's text: line from 1, offset
  ptx_exec *exec;
  const char *opcode; // of all instructions with this opcode the same pointer
  union {
    struct ptx_alu alu;
    struct ptx_mem mem;
    struct ptx_atom *atom;
    struct ptx_call *call;
    struct ptx_sync sync;
    int32_t target; // index in the function's code
    int64_t number;
  };
};

// A parameter or a result of a function. Laid out before all else, so that a prototype is as good as the body.
struct ptx_formal {
  bool reg;
  uint32_t at; // slot, or offset in the frame
  uint32_t bytes;
};

// A function, .entry or .func.
struct ptx_kernel {
  struct ptx_module *module;
  char *name;
  bool entry, defined;
  struct ptx_ins *code;
  int n, room;
  int regs, consts, consts_room; // a frame of slots is the registers, then the constants
  uint64_t *values;              // of the constants
  size_t frame_bytes;            // .local and .param
  struct ptx_formal *formals;
  int results, arguments; // formals: results first
  struct ptx_kernel_info info;
  size_t shared_end; // of the static .shared that it uses itself
  size_t own_shared; // 1 + begin of those declared in an entry, 0: none
  bool dynamic;
  struct ptx_kernel **callees;
  int ncallees, callees_room;
  // With all it calls:
  bool measured, measuring;
  int total_slots, depth;
  size_t total_frame;
};

enum ptx_symbol_kind {
  PTX_SYM_REG,     // slot, bytes (0: a predicate)
  PTX_SYM_RANGE,   // %r<n>: slot of the first, count
  PTX_SYM_MEMORY,  // .global, .const: address
  PTX_SYM_SHARED,  // address in the window
  PTX_SYM_DYNAMIC, // extern .shared
  PTX_SYM_FRAME,   // .local, .param of a call or a function: offset in the frame
  PTX_SYM_PARAM,   // of the kernel: offset in the block
  PTX_SYM_FUNCTION,
  PTX_SYM_LABEL,
};

struct ptx_symbol {
  char *name;
  uint32_t hash; // of the name
  int before;    // 1 + index of the symbol of the same bucket that was added before, 0: none
  enum ptx_symbol_kind kind;
  enum ptx_space space;
  int slot, count, bytes;
  uint64_t address;
  size_t size;
  struct ptx_kernel *function;
};

// An opcode of the module. A module has thousands of instructions, and some dozens of opcodes.
struct ptx_opcode {
  char *text;
  uint32_t hash;
  bool has_alu; // alu is known
  struct ptx_alu alu;
};

// A variable of the module.
struct ptx_global {
  char *name;
  enum ptx_space space;
  uint8_t *storage;
  size_t bytes;
};

struct ptx_module {
  char *text;
  int users;               // how often it was created; guarded by parse.c's lock
  struct ptx_module *next; // of those that are shared
  void **kept;             // memory that goes with the module
  int nkept, kept_room;
  struct ptx_kernel **functions;
  int nfunctions, functions_room;
  struct ptx_global *globals;
  int nglobals, globals_room;
  struct ptx_opcode **opcodes;
  int nopcodes, opcodes_room;
  size_t shared_end; // of the .shared variables outside functions
};

// Memory of the module, zeroed. The process ends when there is none.
void *ptx_keep(struct ptx_module *module, size_t bytes);

// Makes room in an array of `room` elements for one more than n.
void *ptx_grow(void *array, int *room, int n, size_t element);

enum ptx_token { PTX_END, PTX_WORD, PTX_NUMBER, PTX_STRING, PTX_PUNCT };

// A text being parsed. The token at hand is the next one that is not consumed.
struct ptx_parser {
  struct ptx_module *module;
  const char *at; // behind the token at hand
  const char *token_at;
  int line, token_line;
  enum ptx_token kind;
  char token[1024];
  char *why;
  bool failed;
  const char *opcode; // of the instruction at hand, for messages
  struct ptx_kernel *fn;
  struct ptx_symbol *symbols; // of the scopes that are open, innermost last
  int nsymbols, symbols_room;
  int bucket[PTX_BUCKETS]; // by hash: 1 + index of the symbol that was added last, 0: none
  int scope;
  int *scopes; // nsymbols at the begin of each open scope
  int scopes_room;
  struct ptx_reference *references; // to labels that are not known yet
  int nreferences, references_room;
  int sink, carry; // slots, -1: none yet
};

struct ptx_reference {
  int scope;
  int32_t *target; // NULL: of code[ins]
  int ins;
  char *name;
  uint32_t line;
};

// Records the first error, with the line; all tokens are PTX_END from then on. Returns false.
bool ptx_fail(struct ptx_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Goes on to the next token.
void ptx_next(struct ptx_parser *p);

// Skips what remains of the line.
void ptx_skip_line(struct ptx_parser *p);

// Is the token at hand this word or punctuation?
bool ptx_is(const struct ptx_parser *p, const char *text);

// The same; consumes it when it is.
bool ptx_accept(struct ptx_parser *p, const char *text);

// Consumes this; an error when it is another.
bool ptx_expect(struct ptx_parser *p, const char *text);

// Consumes a number, with its sign; an error when it is none.
bool ptx_integer(struct ptx_parser *p, int64_t *value);

// Bits of a number token: an integer, 0f and 0d, or a decimal fraction, for an operand of so many bytes.
bool ptx_number_bits(struct ptx_parser *p, const char *text, int bytes, uint64_t *bits);

// Begins a scope of names.
void ptx_scope_open(struct ptx_parser *p);

// Ends the innermost scope: its labels are resolved, its names forgotten.
bool ptx_scope_close(struct ptx_parser *p);

// A hash of n characters.
uint32_t ptx_hash(const char *text, size_t n);

// Are both texts the same? Most that are compared differ in the first characters: no call of the library for them.
static inline bool ptx_same(const char *a, const char *b)
{
  while (*a == *b && *a) {
    a++;
    b++;
  }
  return *a == *b;
}

// Forgets all symbols but the first n.
void ptx_symbols_drop(struct ptx_parser *p, int n);

// Adds a name to the innermost scope. Valid until the next is added.
struct ptx_symbol *ptx_symbol_add(struct ptx_parser *p, const char *name, enum ptx_symbol_kind kind);

// False when the name is unknown. A register of a range comes as a symbol of its own.
bool ptx_symbol_find(struct ptx_parser *p, const char *name, struct ptx_symbol *symbol);

// The label is here, at the next instruction of the function.
bool ptx_label_here(struct ptx_parser *p, const char *name);

// The target of instruction `ins`, or *target, will be the label, which may come later.
void ptx_label_refer(struct ptx_parser *p, const char *name, int ins, int32_t *target);

// Bytes of a type without its point ("u32": 4, "pred": 0), -1 when it is none; is it signed?
int ptx_type_bytes(const char *type);

// Variables, in and outside functions; the token at hand is the state space.
bool ptx_parse_variables(struct ptx_parser *p, bool external);

// The body of a function, behind its "{" up to and with its "}".
bool ptx_parse_body(struct ptx_parser *p);

// A new slot of the function at hand.
int ptx_slot_new(struct ptx_parser *p, int count);

// The slot of a constant; marked by PTX_CONST_SLOT until the function's end.
enum { PTX_CONST_SLOT = 0x8000 };
int ptx_slot_const(struct ptx_parser *p, uint64_t value);

enum ptx_operand_kind {
  PTX_O_REG,
  PTX_O_NUMBER,
  PTX_O_VECTOR,
  PTX_O_ADDRESS,
  PTX_O_SYMBOL,
  PTX_O_SPECIAL,
  PTX_O_SINK,
};

struct ptx_operand {
  enum ptx_operand_kind kind;
  bool negated, second; // second: "a|b", with b in the next operand
  int slot, bytes;
  char text[48]; // number, special register
  struct ptx_symbol symbol;
  bool based;     // address: has a register or a symbol
  int64_t offset; // address
  int count;      // vector
  struct {        // the first `count`
    bool number, sink;
    int slot, bytes;
    char text[48];
  } element[PTX_VECTOR];
};

enum { PTX_OPERANDS = 12, PTX_WORDS = 16 };

// One instruction as it was read.
struct ptx_source {
  char opcode[128];
  char words[128]; // the opcode, with its points replaced by zeros
  const char *word[PTX_WORDS];
  struct ptx_opcode *kept; // the opcode
  int nwords;
  int noperands;
  int guard;
  bool negated;
  uint32_t line, text;
  struct ptx_operand operand[PTX_OPERANDS]; // the first noperands: the others are not even cleared
};

// Parses and adds one instruction, guard and all.
bool ptx_parse_instruction(struct ptx_parser *p);

// Parses one operand: a scalar, a vector or an address.
bool ptx_parse_operand(struct ptx_parser *p, struct ptx_operand *o);

// Adds an instruction to the function at hand; it has no operands yet. Valid until the next is added.
struct ptx_ins *ptx_emit(struct ptx_parser *p, const struct ptx_source *s, ptx_exec *exec);

// The slot of an operand that is read, -1 on errors. May emit instructions that make its value.
int ptx_input(struct ptx_parser *p, const struct ptx_source *s, const struct ptx_operand *o, int bytes);

// The slot of an operand that is written, -1 on errors.
int ptx_output(struct ptx_parser *p, const struct ptx_operand *o);

// Decoders of groups of instructions. PTX_NOT_MINE when the opcode's first word is of another group.
enum ptx_decoded { PTX_DECODED, PTX_NOT_MINE, PTX_BAD };
enum ptx_decoded ptx_decode_memory(struct ptx_parser *p, struct ptx_source *s);
enum ptx_decoded ptx_decode_sync(struct ptx_parser *p, struct ptx_source *s);
enum ptx_decoded ptx_decode_flow(struct ptx_parser *p, struct ptx_source *s);
enum ptx_decoded ptx_decode_moves(struct ptx_parser *p, struct ptx_source *s);
enum ptx_decoded ptx_decode_alu(struct ptx_parser *p, struct ptx_source *s);

// A call; the token at hand is behind the opcode.
bool ptx_parse_call(struct ptx_parser *p, struct ptx_source *s);

// Numbers for special registers; -1 when the name is none.
int ptx_special_find(const char *name);

// Runs.

struct ptx_return {
  const struct ptx_ins *pc;
  const struct ptx_kernel *fn;
  const struct ptx_call *call;
  uint64_t *regs;
  size_t frame;
};

enum ptx_wait { PTX_READY, PTX_AT_BARRIER, PTX_AT_WARP, PTX_AT_LINE, PTX_ENDED };

// A loop that reads so many words finds all of them again.
enum { PTX_POLLED = 4 };
struct ptx_polled {
  uint64_t key, value;
};

// A store that is not visible to all yet.
struct ptx_pending {
  uint8_t *at;
  uint64_t value;
  uint8_t bytes;
  uint8_t release;       // scope, but for PTX_CTA: everything before must be visible first
  uint32_t epoch;        // stores of an earlier epoch must be visible first,
  uint32_t system_epoch; // and to the whole system
};

enum {
  PTX_THREAD_BUFFER = 16,
  PTX_CTA_BUFFER = 64,
  PTX_DEVICE_STORES = 64,
  PTX_HISTORY = 256,
  PTX_WORDS_APART = 256,
  PTX_REPEATS = 64
};

// What a thread of PTX_STORE_BUFFERS or PTX_STALE_READS has besides.
struct ptx_view {
  int npending;
  uint32_t epoch, system_epoch;  // fences so far
  uint64_t known_all, known_cta; // ticks: what others, and what threads of the CTA, had overwritten by then is known
  struct {
    const uint8_t *at;
    uint64_t value;
    uint8_t bytes;
  } seen[PTX_SEEN];
  struct ptx_pending pending[PTX_THREAD_BUFFER]; // the first npending: the others are not even cleared
};

struct ptx_thread {
  const struct ptx_ins *pc;
  const struct ptx_kernel *fn;
  uint64_t *regs; // of the frame at hand
  size_t frame;   // its offset in local
  uint8_t *local;
  struct ptx_cta *cta;
  struct ptx_view *view; // NULL without such modes
  uint8_t wait, depth;
  bool yields;    // its turn ends
  uint16_t index; // in the CTA
  uint32_t tid[3];
  // Lanes that have come out of an operation of their warp together, 0: none has; and which operation of the warp's.
  uint32_t together, operation;
  // Polling: what was read where, and how often in a row nothing but that happened.
  uint32_t repeats;
  uint64_t polled; // epoch of the run in which it was seen polling
  struct ptx_polled poll[2][PTX_POLLED];
  struct ptx_return stack[PTX_CALLS];
};

struct ptx_warp {
  uint32_t ready, ended; // lanes
  uint32_t at_barrier;   // lanes that wait for the rest of their warp, or for the barrier
  uint32_t at_line;      // lanes that wait for the others of an access that they make together,
  uint32_t operations;   // and how many operations there were
  int8_t barrier;        // where all lanes are, -1: none
};

struct ptx_barrier {
  uint32_t threads;   // expected, 0: all
  uint32_t arrived;   // in multiples of a warp
  bool used, counted; // in this phase: some have arrived; with a count
  uint32_t tally;     // of the reduction: predicates that are true
  uint32_t asked;     // predicates
};

// What the memory of a CTA depends on.
struct ptx_shape {
  int threads, slots;
  size_t shared_bytes, local_bytes;
  bool viewed;
};

struct ptx_cta {
  struct ptx_run *run;
  uint64_t number;
  uint32_t id[3];
  struct ptx_cta *next; // of the spare ones
  struct ptx_shape shape;
  int left; // threads that have not ended
  int nready;
  uint8_t *shared;
  uint64_t *slots;
  uint8_t *locals;
  struct ptx_thread *threads;
  struct ptx_warp *warps;
  struct ptx_view *views;
  struct ptx_barrier barriers[PTX_BARRIERS];
  struct ptx_pending *pending; // PTX_CTA_BUFFER: what the threads of the CTA see already
  int npending;
  uint64_t known_all;
};

// A value that was overwritten. Elements are aligned, so two that overlap lie in the same 8 bytes.
struct ptx_past {
  uint64_t before; // 1 + number of the one before it among those whose 8 bytes have the same bucket, 0: none
  const uint8_t *at;
  uint64_t value;
  uint64_t tick;
  uint64_t cta; // its number
  int thread;   // of the CTA, -1: not known any more
  uint8_t bytes;
};

struct ptx_run {
  const struct ptx_kernel *kernel;
  struct ptx_launch launch;
  uint8_t *params;
  size_t shared_bytes, dynamic_at;
  size_t local_bytes; // of a thread
  int threads, warps; // of a CTA
  int slots;          // of a thread
  uint64_t ctas, started;
  uint32_t *shuffled; // CTAs in random order, or NULL
  struct ptx_cta **live;
  int nlive, live_room;
  uint64_t resident;
  struct ptx_cta *spare;
  uint64_t random;
  uint64_t instructions;
  // Whose turn it is, and for how many instructions still.
  struct ptx_thread *turn;
  int64_t portion;
  int at_cta, at_thread;      // order
  uint64_t ready;             // threads that can go on, in all CTAs
  uint64_t epoch, polled;     // threads that were seen polling in this epoch
  bool stuck;                 // all were, and nothing has happened since
  int64_t pending;            // stores in all buffers
  uint64_t lateness;          // one turn in so many makes a store visible
  struct ptx_pending *device; // PTX_DEVICE_STORES: what all threads of the run see already. NULL: no such mode
  int ndevice;
  uint64_t tick;
  struct ptx_past *history;
  uint64_t npast;
  uint64_t newest[PTX_WORDS_APART]; // of the history, by bucket: 1 + number
  enum ptx_state state;
  char *report;
};

// Lets the thread go on for at most so many instructions; returns how many it did.
int64_t ptx_interpret(struct ptx_thread *thread, int64_t most);

// A draw from 0 to n - 1.
uint64_t ptx_draw(struct ptx_run *run, uint64_t n);

// Something has happened that others may wait for.
static inline void ptx_run_progress(struct ptx_run *run)
{
  run->epoch++;
  run->polled = 0;
  run->stuck = false;
}

static inline void ptx_progress(struct ptx_thread *thread)
{
  thread->repeats = 0;
  ptx_run_progress(thread->cta->run);
}

// A value was read; is it but what was read there before? Then false is returned when the thread has done nothing else
// for a while, and others should have their turn.
bool ptx_poll(struct ptx_thread *thread, const struct ptx_ins *ins, uint64_t address, uint64_t value);

// The thread has done nothing but what it did before. False: for a while, and others should have their turn.
bool ptx_repeat(struct ptx_thread *thread);

// Ends the run with a fault of this thread at this instruction. Returns false.
bool ptx_fault(struct ptx_thread *thread, const struct ptx_ins *ins, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Ends the run because no thread can go on.
void ptx_fault_deadlock(struct ptx_run *run);

// The thread waits at this instruction, or has ended.
void ptx_thread_block(struct ptx_thread *thread, const struct ptx_ins *ins, enum ptx_wait wait);

// The thread waits no more: at the next instruction it goes on.
void ptx_thread_wake(struct ptx_thread *thread);

// Starts the next CTA; false when all have started or no more may be there.
bool ptx_cta_start_next(struct ptx_run *run);

// Removes CTAs that have ended and whose stores are visible.
void ptx_cta_reap(struct ptx_run *run);

// Frees the memory of all CTAs.
void ptx_cta_free_all(struct ptx_run *run);

// The thread has ended. Returns false.
bool ptx_thread_end(struct ptx_thread *thread);

// Where an access goes, or NULL with a fault. direct: nobody else sees the memory.
uint8_t *ptx_place(struct ptx_thread *thread, const struct ptx_ins *ins, const struct ptx_mem *m, int access,
                   bool *direct);

// Reads 1, 2, 4 or 8 bytes of memory in one access, with acquire.
uint64_t ptx_raw_load(const uint8_t *at, int bytes);

// Writes 1, 2, 4 or 8 bytes of memory in one access, with release.
void ptx_raw_store(uint8_t *at, int bytes, uint64_t value);

// What the thread sees at this element of memory, in the run's modes.
uint64_t ptx_view_load(struct ptx_thread *thread, const struct ptx_mem *m, const uint8_t *at);

// Stores an element, into the thread's buffer where the run's modes want that.
void ptx_view_store(struct ptx_thread *thread, const struct ptx_mem *m, uint8_t *at, uint64_t value);

// Makes the thread's and its CTA's stores to these bytes visible: before an atomic operation.
void ptx_view_settle(struct ptx_thread *thread, const uint8_t *at, int bytes);

// Notes that a value is being overwritten.
void ptx_view_overwritten(struct ptx_thread *thread, uint8_t *at, int bytes, uint64_t old);

// Makes visible to the scope what the thread has stored and what it has seen of its CTA's stores.
void ptx_view_release(struct ptx_thread *thread, enum ptx_scope scope);

// Orders the thread's later loads behind what it has read: of what the scope had made visible they see nothing older.
void ptx_view_acquire(struct ptx_thread *thread, enum ptx_scope scope);

// A fence. acq_rel orders the earlier stores before the later ones, sc also before the later loads.
void ptx_view_fence(struct ptx_thread *thread, enum ptx_sem sem, enum ptx_scope scope);

// The thread has ended: its stores go on without it.
void ptx_view_end(struct ptx_thread *thread);

// Do two ranges of bytes overlap? One may be NULL, of no bytes.
static inline bool ptx_overlap(const uint8_t *a, int an, const uint8_t *b, int bn)
{
  return (uintptr_t)a < (uintptr_t)b + (uintptr_t)bn && (uintptr_t)b < (uintptr_t)a + (uintptr_t)an;
}

// The bucket of the 8 bytes in which an element lies.
static inline unsigned ptx_past_bucket(const uint8_t *at)
{
  return (unsigned)((uintptr_t)at / 8 % PTX_WORDS_APART);
}

// Notes that a store overwrites a value. The thread is NULL when all of the CTA have seen the store before.
void ptx_late_remember(struct ptx_cta *cta, const struct ptx_thread *thread, const struct ptx_pending *store,
                       uint64_t old);

// Lays the bytes that stores have in common with a load over its value. True when there are any.
bool ptx_late_lay_over(const struct ptx_pending *list, int n, const uint8_t *at, int bytes, uint64_t *value);

// Makes a store visible to all that was in no buffer.
void ptx_late_write(struct ptx_cta *cta, const struct ptx_thread *thread, const struct ptx_pending *store);

// Makes the thread's first `count` stores visible, each to those for whom it is ordered before what follows.
void ptx_late_drain_first(struct ptx_thread *thread, int count);

// Makes the thread's store at `index` visible to all, and before it what must come first.
void ptx_late_drain_one(struct ptx_thread *thread, int index);

// Makes the thread's stores visible to its CTA.
void ptx_late_promote(struct ptx_thread *thread);

// Makes what all threads of the CTA see already visible to the scope, .gpu or .sys.
void ptx_late_order_seen(struct ptx_cta *cta, enum ptx_scope scope);

// The same, and then the thread's own stores.
void ptx_late_drain_all(struct ptx_thread *thread, enum ptx_scope scope);

// Before an atomic operation: what is late at these bytes, and what fences order before it.
void ptx_late_settle(struct ptx_thread *thread, const uint8_t *at, int bytes);

// One of the stores that wait, drawn at random, becomes visible, and with it what must do so first.
void ptx_late_drain_some(struct ptx_run *run);

// A thread has ended: barriers may be complete now. False when that shows a fault.
bool ptx_barrier_thread_ended(struct ptx_thread *thread);

// A thread has ended: operations of its warp may be complete now.
void ptx_warp_thread_ended(struct ptx_thread *thread);

// PTX_WHOLE_LINES (line.c): does the instruction make such an access?
bool ptx_makes_line(const struct ptx_thread *thread, const struct ptx_ins *ins);

// The thread comes to that access of 16 bytes. Returns whether it can go on.
bool ptx_do_line(struct ptx_thread *thread, const struct ptx_ins *ins);

// A thread of the warp goes on no more: an access that waited for it may be complete now.
void ptx_warp_line_perhaps(struct ptx_cta *cta, int warp);

// Executors.
ptx_exec ptx_do_alu_any, ptx_do_special, ptx_do_frame, ptx_do_not, ptx_do_pack, ptx_do_unpack, ptx_do_call, ptx_do_ret,
    ptx_do_exit, ptx_do_trap, ptx_do_load, ptx_do_store, ptx_do_atomic, ptx_do_fence, ptx_do_nothing, ptx_do_yield,
    ptx_do_isspace, ptx_do_to_generic, ptx_do_from_generic, ptx_do_barrier, ptx_do_warp, ptx_do_activemask;

// Kinds of ptx_sync and ptx_atom.
enum ptx_barrier_kind { PTX_BAR_SYNC, PTX_BAR_ARRIVE, PTX_BAR_POPC, PTX_BAR_AND, PTX_BAR_OR };
enum ptx_warp_kind {
  PTX_WARP_SYNC,
  PTX_SHFL_UP,
  PTX_SHFL_DOWN,
  PTX_SHFL_BFLY,
  PTX_SHFL_IDX,
  PTX_VOTE_ALL,
  PTX_VOTE_ANY,
  PTX_VOTE_UNI,
  PTX_VOTE_BALLOT,
  PTX_MATCH_ANY,
  PTX_MATCH_ALL,
  PTX_REDUX,
};
enum ptx_atom_kind { PTX_ATOM_ALU, PTX_ATOM_EXCH, PTX_ATOM_CAS, PTX_ATOM_INC, PTX_ATOM_DEC };

#endif
