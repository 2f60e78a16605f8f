// library.h: shared libraries opened at run time.
//
// A library is opened with its own symbols for itself (RTLD_LOCAL). A library with undefined symbols that cannot be
// found is opened all the same, because it may never call them here (a plugin built with CUDA, say). The first of
// them is named; calling one would end the process.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tt_library tt_library;

enum { TT_LIBRARY_WHY = 512 };

// What became of an attempt to open.
typedef enum {
  TT_LIBRARY_OPEN,    // it is open; `why` names an undefined symbol, or is empty
  TT_LIBRARY_ABSENT,  // there is no file of that name where the dynamic linker looks
  TT_LIBRARY_REFUSED, // there is one, and `why` says what is wrong with it
} tt_library_state;

// Opens `name` (a path, or a name that the dynamic linker looks up; NULL: the program itself and what it is linked
// with). `why`: TT_LIBRARY_WHY bytes, cut. On TT_LIBRARY_OPEN *out is the library, to be closed as often as it was
// opened. Constructors of the library run in the calling thread. Any thread.
tt_library_state tt_library_open(const char *name, tt_library **out, char *why);

// Address of `symbol` in it, or in what it was linked with; NULL when there is none.
void *tt_library_symbol(tt_library *lib, const char *symbol);

// The file as the dynamic linker names it; "" for the program. Valid while the library is open.
const char *tt_library_path(tt_library *lib);

// Looks for a file beside the library that this code is in (or the program, where it is linked into that), then in
// ../lib of that folder. False: it is in neither.
bool tt_library_beside(const char *file, char *out, size_t size);

// Keeps the library that this code is in (if it is in one) loaded until the process ends, whatever the program
// closes: for code of detached threads. Does nothing the second time. Any thread, with locks held.
void tt_library_stay(void);

// NULL is allowed. Destructors of the library run in the calling thread when it is open nowhere else.
void tt_library_close(tt_library *lib);
