// library.c: see library.h.
#define _GNU_SOURCE // dlinfo
#include "os/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "os/proc.h"

// Held while libraries come and go, and across forks: a child must not find the linker's lists half changed. A
// library's constructor may load others, or fork: the thread that has the lock does not take it again. A fork takes
// it before the locks of proc.h, because a constructor may come to take those.
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static __thread int depth; // how often this thread has it

static void take_loading(void)
{
  if (depth++ == 0) {
    pthread_mutex_lock(&loading);
  }
}

static void give_loading(void)
{
  if (--depth == 0) {
    pthread_mutex_unlock(&loading);
  }
}

__attribute__((constructor)) static void order_fork_locks(void)
{
  (void)tt_proc_self(); // registers its functions, which then come behind these
  pthread_atfork(take_loading, give_loading, give_loading);
}

// The linker's text for a file that is not there begins with its name and holds the system's text. Where a
// *dependency* is missing, it begins with the dependency's name.
static bool is_absent(const char *name, const char *text)
{
  if (strchr(name, '/') != NULL) {
    return access(name, F_OK) != 0;
  }
  size_t n = strlen(name);
  return strncmp(text, name, n) == 0 && text[n] == ':' && strstr(text, strerror(ENOENT)) != NULL;
}

// "undefined symbol: NAME ..." with or without a translated text around it: the file's name, then what is wrong.
static void copy_error(char *why, const char *text)
{
  snprintf(why, TT_LIBRARY_WHY, "%s", text != NULL ? text : "no reason given");
}

// The linker would wait for a writer of a pipe.
static bool is_no_file(const char *name)
{
  struct stat st;
  return name != NULL && strchr(name, '/') != NULL && stat(name, &st) == 0 && !S_ISREG(st.st_mode);
}

static tt_library_state try_library(const char *name, tt_library **out, char *why)
{
  why[0] = '\0';
  if (is_no_file(name)) {
    snprintf(why, TT_LIBRARY_WHY, "%s: not a regular file", name);
    return TT_LIBRARY_REFUSED;
  }
  void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    copy_error(why, dlerror());
    if (name != NULL && is_absent(name, why)) {
      return TT_LIBRARY_ABSENT;
    }
    handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (handle == NULL) {
      copy_error(why, dlerror());
      return TT_LIBRARY_REFUSED;
    }
  }
  *out = handle; // tt_library is never defined
  return TT_LIBRARY_OPEN;
}

tt_library_state tt_library_open(const char *name, tt_library **out, char *why)
{
  take_loading();
  tt_library_state state = try_library(name, out, why);
  give_loading();
  return state;
}

void *tt_library_symbol(tt_library *lib, const char *symbol)
{
  return dlsym(lib, symbol);
}

const char *tt_library_path(tt_library *lib)
{
  struct link_map *map = NULL;
  return dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map != NULL ? map->l_name : "";
}

bool tt_library_beside(const char *file, char *out, size_t size)
{
  static const char *const ways[] = {"", "../lib/"};
  Dl_info here;
  if (dladdr((const void *)(uintptr_t)&tt_library_beside, &here) == 0 || here.dli_fname == NULL) {
    return false;
  }
  const char *slash = strrchr(here.dli_fname, '/');
  int folder = slash == NULL ? 0 : (int)(slash - here.dli_fname) + 1;
  for (size_t i = 0; i < TT_COUNT(ways); i++) {
    int n = snprintf(out, size, "%s%.*s%s%s", folder == 0 ? "./" : "", folder, here.dli_fname, ways[i], file);
    if (n > 0 && (size_t)n < size && access(out, R_OK) == 0) {
      return true;
    }
  }
  return false;
}

// Not under `loading`: a fork takes that before locks that callers hold. Nothing is loaded or unloaded, and the
// linker has a lock of its own.
void tt_library_stay(void)
{
  static _Atomic bool stays;
  Dl_info info;
  struct link_map *map = NULL;
  if (atomic_load_explicit(&stays, memory_order_acquire)) {
    return;
  }
  if (dladdr1((const void *)(uintptr_t)&tt_library_stay, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL &&
      map->l_name[0] != '\0' &&
      dlopen(map->l_name, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) == NULL) { // the program has no name, and stays
    (void)dlerror(); // the application's next question is not about this
  }
  atomic_store_explicit(&stays, true, memory_order_release);
}

void tt_library_close(tt_library *lib)
{
  if (lib != NULL) {
    take_loading();
    dlclose(lib);
    give_loading();
  }
}
