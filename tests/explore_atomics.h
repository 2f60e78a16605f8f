// explore_atomics.h: atomics, fences and futexes as calls of the explorer (explore.h). Included before the code that is
// explored: what a header or a .c file says with <stdatomic.h>, with the compiler's __atomic_load_n and with
// syscall(SYS_futex, …) then happens in the explorer's memory model.
#pragma once
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum ex_op {
  EX_LOAD,
  EX_STORE,
  EX_EXCHANGE,
  EX_ADD,
  EX_CAS,
  EX_FENCE,
  EX_WAIT,
  EX_WAKE,
  EX_SET,
  EX_UNTIL
} ex_op;

// Where an access stands in the code: mutants are named by it.
typedef struct ex_site {
  const char *function, *text, *file;
} ex_site;

// One access of the running thread to a word of `size` bytes: lets every other thread go first, in turn. Returns what
// the word held; of EX_CAS whether it was `expected` is for the caller to see. `ordered`: a store that waits until it
// has reached memory. *a is zeroed: leftovers on a stack would make the same state look like another one.
typedef struct ex_access {
  ex_op op;
  bool ordered;
  volatile void *at;
  unsigned size;
  uint64_t value, expected;
} ex_access;

uint64_t ex_access_word(ex_access *a, const ex_site *site);
// A system call: futexes are modelled, no other is allowed.
long ex_syscall(const ex_site *site, long number, ...);

#define EX_HERE(what)                                          \
  ({                                                           \
    static const ex_site ex_here = {__func__, what, __FILE__}; \
    &ex_here;                                                  \
  })
#define EX_PLAIN(p) __typeof__((void)0, *(p))
#define EX_DO(kind, order, p, v, e, what)                                                 \
  ({                                                                                      \
    (EX_PLAIN(p)) ex_access_word(&(ex_access){.op = (kind),                               \
                                              .ordered = (order) == memory_order_seq_cst, \
                                              .at = (volatile void *)(p),                 \
                                              .size = sizeof *(p),                        \
                                              .value = (uint64_t)(v),                     \
                                              .expected = (uint64_t)(e)},                 \
                                 EX_HERE(what));                                          \
  })

#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_exchange_explicit
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub
#undef atomic_fetch_sub_explicit
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_weak_explicit
#undef atomic_thread_fence

#define atomic_load_explicit(p, o) EX_DO(EX_LOAD, o, p, 0, 0, "load " #p)
#define atomic_load(p) atomic_load_explicit(p, memory_order_seq_cst)
#define __atomic_load_n(p, o) EX_DO(EX_LOAD, memory_order_seq_cst, p, 0, 0, "load " #p)
#define atomic_store_explicit(p, v, o) ((void)EX_DO(EX_STORE, o, p, v, 0, "store " #p))
#define atomic_store(p, v) atomic_store_explicit(p, v, memory_order_seq_cst)
#define atomic_exchange_explicit(p, v, o) EX_DO(EX_EXCHANGE, memory_order_seq_cst, p, v, 0, "exchange " #p)
#define atomic_exchange(p, v) atomic_exchange_explicit(p, v, memory_order_seq_cst)
#define atomic_fetch_add_explicit(p, v, o) EX_DO(EX_ADD, memory_order_seq_cst, p, v, 0, "add " #p)
#define atomic_fetch_add(p, v) atomic_fetch_add_explicit(p, v, memory_order_seq_cst)
#define atomic_fetch_sub_explicit(p, v, o) EX_DO(EX_ADD, memory_order_seq_cst, p, -(uint64_t)(v), 0, "subtract " #p)
#define atomic_fetch_sub(p, v) atomic_fetch_sub_explicit(p, v, memory_order_seq_cst)
#define atomic_compare_exchange_strong_explicit(p, e, v, o, o2)                                         \
  ({                                                                                                    \
    EX_PLAIN(p) ex_found = EX_DO(EX_CAS, memory_order_seq_cst, p, v, *(e), "compare and exchange " #p); \
    bool ex_same = ex_found == *(e);                                                                    \
    *(e) = ex_found;                                                                                    \
    ex_same;                                                                                            \
  })
#define atomic_compare_exchange_strong(p, e, v) atomic_compare_exchange_strong_explicit(p, e, v, 0, 0)
#define atomic_compare_exchange_weak(p, e, v) atomic_compare_exchange_strong_explicit(p, e, v, 0, 0)
#define atomic_compare_exchange_weak_explicit(p, e, v, o, o2) atomic_compare_exchange_strong_explicit(p, e, v, o, o2)
#define atomic_thread_fence(o) ((void)ex_access_word(&(ex_access){.op = EX_FENCE}, EX_HERE("fence")))
// For stubs of other system calls, of which a test says what they do: sets a word; waits until a word is not `e`, and
// sets it then.
#define EX_CALL_SET(p, v, what) ((void)EX_DO(EX_SET, memory_order_seq_cst, p, v, 0, what))
#define EX_CALL_UNTIL(p, e, v, what) ((void)EX_DO(EX_UNTIL, memory_order_seq_cst, p, v, e, what))
#define syscall(...) ex_syscall(EX_HERE("futex"), __VA_ARGS__)
