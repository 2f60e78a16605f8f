// explore.h: walks every interleaving of a few threads that run the library's own code, under total store order (as on
// x86).
//
// The code is compiled into the test with explore_atomics.h before it. Each thread is a coroutine; each atomic access,
// fence and futex is a step, before which any other thread may take steps of its own, or a store may move out of a
// thread's store buffer into memory. A plain store becomes visible later than the loads that follow it;
// read-modify-writes, fences and system calls wait until the thread's buffer is empty.
//
// All states that can be reached are visited once. A state is the shared memory, the buffers, and each thread's
// registers and stack. Threads must not look at anything else that changes. A scene fails where ex_require is told
// `false`, and where a state is found from which some thread can never end: it sleeps, or all go round in circles.
//
// A mutant is one access of the explored code, found by itself, left out or weakened: `ex_mutants` tries each, and the
// caller lists those that do no harm. So the test shows that every access is needed, or says of it that it is not.
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { EX_THREADS = 4 };

// Memory beside a scene's own: variables of the explored code.
typedef struct ex_span {
  void *at;
  size_t size;
} ex_span;

typedef struct ex_scene {
  const char *name;
  void *memory; // all words that threads share; zero in the beginning
  size_t size;
  const ex_span *spans; // what else they share, likewise; at: NULL ends the list. NULL: nothing
  void (*begin)(void);  // sets it up, when it has been zeroed; may be NULL
  void (*threads[EX_THREADS])(void);
  void (*end)(void);    // when all threads have ended: ex_require; may be NULL
  bool (*beyond)(void); // is the state one that is not gone on from? For threads that may go round as often as they
                        // like. NULL: none is
  bool hides;  // private steps take no other threads' turns (explore.c: find_hidden): far fewer states, and plain
               // accesses meet in fewer orders
  bool mortal; // thread 0 may die at any step; what is in its store buffer still comes. Sleepers then wake by time
} ex_scene;

// Of the running thread, or of a scene's end: `what` should hold.
void ex_require(bool holds, const char *what);
// Has thread 0 of a mortal scene died, and does nothing of it come any more? A step.
bool ex_is_dead(void);

// Walks the scene. Returns NULL where all is well; else what went wrong, and prints the way there. *states: how many
// states there are; may be NULL.
const char *ex_explore(const ex_scene *scene, unsigned *states);

// Walks the scenes with each mutant of the sites that they pass, and fails the test where one does no harm in any scene
// and is not in `harmless`
// ("function: what"), or is there and does harm. "function:" stands for all that the function does, which is not tried.
// Ends the list with NULL.
void ex_mutants(const ex_scene *scenes, size_t n, const char *const *harmless);
