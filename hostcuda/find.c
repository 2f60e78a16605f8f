// find.c: the driver's functions by name, and those whose answer does not depend on their arguments.
//
// The driver's types are not known here: these are its names, not its prototypes.
#include <string.h>

#include "driver.h"

#define VISIBLE __attribute__((visibility("default")))

typedef void (*function)(void);

#define T(name, since, symbol, twin) VISIBLE void symbol(void), twin(void);
#define D(name, since, symbol) VISIBLE void symbol(void);
#define R(name, since, symbol, error) VISIBLE int constant_##symbol(void) __asm__(#symbol);
#define Q(name, since, symbol, twin, error) R(name, since, symbol, error) R(name, since, twin, error)
#include "driver.def"
#undef Q
#undef R
#undef D
#undef T

// Whose answer is constant.
#define T(name, since, symbol, twin)
#define D(name, since, symbol)
#define R(name, since, symbol, error) \
  int constant_##symbol(void)         \
  {                                   \
    return error;                     \
  }
#define Q(name, since, symbol, twin, error) R(name, since, symbol, error) R(name, since, twin, error)
#include "driver.def"
#undef Q
#undef R
#undef D
#undef T

void *hc_driver_find(const char *name, unsigned version, bool per_thread, enum cudaDriverEntryPointQueryResult *status)
{
  static const struct form {
    const char *name;
    unsigned since;
    function usual, per_thread;
  } all[] = {
#define T(name, since, symbol, twin) {#name, since, symbol, twin},
#define D(name, since, symbol) T(name, since, symbol, symbol)
#define R(name, since, symbol, error) T(name, since, (function)constant_##symbol, (function)constant_##symbol)
#define Q(name, since, symbol, twin, error) T(name, since, (function)constant_##symbol, (function)constant_##twin)
#include "driver.def"
#undef Q
#undef R
#undef D
#undef T
  };
  const struct form *best = NULL;
  void *found = NULL;
  *status = cudaDriverEntryPointSymbolNotFound;
  for (const struct form *f = all; f < all + sizeof all / sizeof *all; f++) {
    if (strcmp(f->name, name) != 0) {
      continue;
    }
    if (f->since <= version && (best == NULL || f->since > best->since)) {
      best = f;
    }
    *status = best != NULL ? cudaDriverEntryPointSuccess : cudaDriverEntryPointVersionNotSufficent;
  }
  if (best != NULL) {
    memcpy(&found, per_thread ? &best->per_thread : &best->usual, sizeof found);
  }
  return found;
}
