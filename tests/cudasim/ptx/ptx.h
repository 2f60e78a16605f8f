// ptx.h: a machine that runs PTX, the assembly of NVIDIA GPUs, on host memory: for tests of kernels on machines without
// a GPU.
//
// A module is made from the text of PTX as compilers write it. A launch of one of its kernels is a run, which is
// stepped: so a driver can let several kernels go on in turn, can stop one that polls for ever, and can tell a
// deadlock. Device pointers are addresses of this process; who made them valid is asked by a callback before every
// access. Source: NVIDIA's "Parallel Thread Execution ISA" (instructions, §9; memory consistency model, §8).
//
// Nothing here locks: a module may be used by one thread at a time, a run belongs to the thread that steps it. Runs of
// several threads and processes may share memory, as kernels of several GPUs do.
#ifndef TUTTI_TESTS_CUDASIM_PTX_H
#define TUTTI_TESTS_CUDASIM_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PTX_TEXT = 512, PTX_MAX_PARAMS = 64 };

// Nanoseconds by which %globaltimer is ahead of CLOCK_MONOTONIC: who takes one clock for the other is found out.
#define PTX_TIME_AHEAD UINT64_C(1000000000000000000)

struct ptx_module;
struct ptx_kernel;
struct ptx_run;

// Parses the text (zero-terminated). NULL when it is no PTX or uses what the machine has not got: why then says the
// line, the instruction and what is wrong. Equal texts without variables give the same module again; one thread at a
// time calls.
struct ptx_module *ptx_module_create(const char *text, char why[PTX_TEXT]);

// Frees a module; runs of it must have been destroyed. NULL is ignored.
void ptx_module_destroy(struct ptx_module *module);

// The kernel (.entry) of this name, NULL when there is none. Belongs to the module.
const struct ptx_kernel *ptx_module_kernel(const struct ptx_module *module, const char *name);

// The storage of the module's variable (.global or .const) of this name, and its bytes; NULL when there is none.
// Belongs to the module.
void *ptx_module_global(const struct ptx_module *module, const char *name, size_t *bytes);

struct ptx_param {
  size_t offset, bytes; // in the block of parameters
};

struct ptx_kernel_info {
  int params;
  struct ptx_param param[PTX_MAX_PARAMS];
  size_t param_bytes;  // of the block
  size_t shared_bytes; // static .shared
  int max_threads;     // .maxntid, or 1024
  bool dynamic_shared; // has an extern .shared array
};

// Writes what a launch must know of the kernel.
void ptx_kernel_info(const struct ptx_kernel *kernel, struct ptx_kernel_info *info);

// How nasty a run is. All draws come from the launch's seed, so a run with one thread at its memory can be repeated.
enum ptx_modes {
  PTX_RANDOM_ORDER =
      1, // CTAs and warps go on in random order and portions; else lowest first, a warp as far as it gets
  PTX_STORE_BUFFERS = 2, // stores of a thread become visible to other CTAs and to the host late and out of order, but
                         // for what fences and releases order
  PTX_STALE_READS = 4, // a weak load may return what the thread saw at the address before, until a fence or an acquire
  PTX_DEVICE_BUFFER = 8, // with PTX_STORE_BUFFERS: what fences and releases order for the GPU alone (.gpu) becomes
                         // visible to the host and to other runs late and out of order. Runs on one GPU that speak to
                         // one another by .gpu would be wronged
  PTX_WHOLE_LINES = 16 // accesses of 16 bytes that lanes of a warp make together are one access (line.c): what GPUs do
                       // in their own memory, and in that of others over NVLink. PTX promises no such thing
};

enum ptx_access { PTX_READ = 1, PTX_WRITE = 2, PTX_ATOMIC = 4 };

struct ptx_launch {
  unsigned grid[3], block[3]; // of CTAs, of threads
  size_t dynamic_shared;      // bytes
  const void *params;         // param_bytes of the kernel; copied
  unsigned modes;             // of ptx_modes
  uint64_t seed;
  int sms; // how many CTAs are resident together at most; 0: all
  // May be NULL: everything is valid. Called before an access of global memory; false, with a text, makes the access a
  // fault of the kernel.
  bool (*valid)(void *arg, uint64_t address, size_t bytes, enum ptx_access access, char why[PTX_TEXT]);
  void *arg;
};

// Starts a run; nothing is executed yet. NULL, with a text, when the kernel cannot be launched so (sizes, shared
// memory, memory).
struct ptx_run *ptx_run_create(const struct ptx_kernel *kernel, const struct ptx_launch *launch, char why[PTX_TEXT]);

enum ptx_state {
  PTX_RUNNING, // there is more to do
  PTX_POLLING, // there is more to do, but every thread that could go on has read words that did not change, many times
               // and nothing else, and nothing has happened since. Said by every step until something does; a word
               // that has changed meanwhile is seen by one of the next steps
  PTX_DONE,    // all threads have ended, and all stores are visible
  PTX_FAULT,   // an access that is not valid, a misaligned one, a trap, a barrier that cannot be met, a division of
               // labour that PTX leaves undefined
};

// Executes about `instructions` more of the run. After PTX_DONE and PTX_FAULT it returns the same again.
enum ptx_state ptx_run_step(struct ptx_run *run, uint64_t instructions);

// What went wrong (kernel, CTA, thread, line of the PTX, instruction, address), or where each thread that has not ended
// stands: a text of several lines that belongs to the run and holds until its next call.
const char *ptx_run_report(struct ptx_run *run);

// Instructions of threads executed so far.
uint64_t ptx_run_instructions(const struct ptx_run *run);

// Frees a run, ended or not. NULL is ignored.
void ptx_run_destroy(struct ptx_run *run);

#endif
