// params_doc.c: prints docs/params.md from src/base/params.def. The lists of NCCL_ variables that people read and the
// one that the library reads are so the same. Build: cc -Iinclude -Isrc scripts/params_doc.c && ./a.out >
// docs/params.md
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"

// What a default looks like in the table.
static const char *shown_default(const char *def)
{
  if (strcmp(def, "NULL") == 0 || strcmp(def, "UNSET") == 0) {
    return "not set";
  }
  return strcmp(def, "-2") == 0 ? "automatic" : def;
}

static const char *shown_state(unsigned flags)
{
  if (flags & TT_PARAM_IGNORED) {
    return flags & TT_PARAM_HIDDEN ? "no effect, hidden" : "no effect";
  }
  return flags & TT_PARAM_HIDDEN ? "hidden" : "";
}

// The | of a text would end the table's cell.
static void put_cell(const char *text)
{
  for (; *text != '\0'; text++) {
    printf(*text == '|' ? "\\|" : "%c", *text);
  }
}

static void put_group(const char *title)
{
  printf("\n## %s\n\n| variable | type | default | meaning | state |\n|---|---|---|---|---|\n", title);
}

static void put_row(const char *name, const char *type, const char *def, unsigned flags, const char *doc)
{
  const char *shown = shown_default(def);
  const char *tick = shown == def ? "`" : "";
  printf("| `%s` | %s | %s%s%s | ", name, strcmp(type, "STR") == 0 ? "text" : type, tick, shown, tick);
  put_cell(doc);
  printf(" | %s |\n", shown_state(flags));
}

int main(void)
{
  puts("# Parameters\n\n"
       "Generated from `src/base/params.def` by `scripts/params_doc.c`: change it there.\n\n"
       "A value comes from the environment, else from a configuration file, else from `ncclConfig_t`, else it is\n"
       "the default. Configuration files have lines `NAME=VALUE` and comments that begin with `#`; `NCCL_CONF_FILE`\n"
       "(or `~/.nccl.conf` when that is not set) is read first, then `/etc/nccl.conf`; the first one to name a\n"
       "variable counts. An empty value counts as not set, unless a line says otherwise.\n\n"
       "`INT` is decimal or `0x...`, with `k`, `m` or `g` (times 1024, 1024², 1024³) behind it if wanted. `BOOL` is\n"
       "0 or 1 (also no/yes, false/true, off/on). What cannot be read, and a number or a word that means nothing,\n"
       "give a warning and the default. What chooses how ranks meet or compute is an error of the call that needs it\n"
       "instead: `NCCL_ALGO`, `NCCL_PROTO`, `NCCL_MIN_CTAS`, `NCCL_MAX_CTAS`, `NCCL_COMM_ID`, `NCCL_NET`,\n"
       "`NCCL_SOCKET_IFNAME`, `NCCL_SOCKET_FAMILY`, and files of topology, graphs and secrets. A name that is not in\n"
       "these tables gives a warning with the nearest one that is, on standard error where `NCCL_DEBUG` is not set.\n"
       "*No effect*: accepted because NCCL has it, but nothing here depends on it (said at `NCCL_DEBUG=INFO`).\n"
       "*Hidden*: listed by `ncclParamGetAllParameterKeys` and `ncclParamDumpAll` only with `NCCL_PARAM_DUMP_ALL=1`.");
#define G(title) put_group(title);
#define P(field, TYPE, name, def, flags, doc) put_row(name, #TYPE, #def, (flags), doc);
#include "base/params.def"
#undef P
  return 0;
}
