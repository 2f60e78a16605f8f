// openssl.c: see openssl.h.
#include "os/openssl.h"

#include <string.h>

#include "base/result.h"
#include "base/util.h"
#include "os/library.h"

#define LIBRARY "libssl.so.3"

typedef struct symbol {
  const char *name;
  size_t at; // in tt_openssl
} symbol;

#define NAMED(result, name, arguments) {#name, offsetof(tt_openssl, name)},
static const symbol openssl_symbols[] = {TT_OPENSSL_FUNCTIONS(NAMED)};
#undef NAMED

ncclResult_t tt_openssl_open(tt_openssl *out)
{
  tt_library *lib = NULL;
  char why[TT_LIBRARY_WHY];
  tt_library_state state = tt_library_open(LIBRARY, &lib, why);
  if (state != TT_LIBRARY_OPEN) {
    return tt_fail(ncclSystemError,
                   "encryption needs OpenSSL 3, and " LIBRARY " cannot be opened (%s): install the package libssl3 "
                   "(Debian, Ubuntu) or openssl-libs (Fedora, RHEL) on every machine",
                   state == TT_LIBRARY_ABSENT ? "it is not there" : why);
  }
  for (size_t i = 0; i < TT_COUNT(openssl_symbols); i++) {
    void *function = tt_library_symbol(lib, openssl_symbols[i].name);
    if (function == NULL) {
      tt_library_close(lib);
      return tt_fail(ncclSystemError, "encryption: " LIBRARY " has no function %s: it is not a whole OpenSSL 3",
                     openssl_symbols[i].name);
    }
    memcpy((char *)out + openssl_symbols[i].at, &function, sizeof(function));
  }
  return ncclSuccess;
}
