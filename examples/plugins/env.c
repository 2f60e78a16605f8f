// env.c: an environment plugin: the library's variables come from a file, so that a site has them in one place. Version
// 2 of the interface.
//
//   NCCL_ENV_PLUGIN=/path/libnccl-env-example.so EXAMPLE_ENV_FILE=site.conf ./program     # lines of the form
//   NCCL_ALGO=Ring
//
// What is worth knowing before one writes a plugin of one's own:
//  - It is asked instead of the process's environment, so a plugin that wants both asks getenv, too: here the
//  environment wins.
//  - NULL means that a variable is not set. A text has to stay as it is while other variables are asked for.
//  - init is the first call and finalize the last, once each in a process. The first question comes from whatever
//  thread uses the library first.
//  - Nothing of the library is there yet: the plugin must not call it. The logger may be used.
#include <errno.h>
#include <nccl/env.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *text; // the whole file; ends of names and lines have become zeroes
static size_t size;

static ncclResult_t init(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix, ncclDebugLogger_t log)
{
  enum { MOST = 65536 };
  const char *name = getenv("EXAMPLE_ENV_FILE");
  (void)suffix;
  if (name == NULL) {
    return ncclSuccess;
  }
  FILE *f = fopen(name, "r");
  text = f != NULL ? malloc(MOST) : NULL;
  if (text == NULL) {
    log(NCCL_LOG_WARN, NCCL_ENV, __FILE__, __LINE__, "example environment: cannot read %s: %s", name, strerror(errno));
    if (f != NULL) {
      fclose(f);
    }
    return ncclSystemError; // the library goes on with the process's environment
  }
  size = fread(text, 1, MOST - 1, f);
  fclose(f);
  text[size] = '\0';
  for (size_t i = 0; i < size; i++) {
    text[i] = text[i] == '\n' ? '\0' : text[i];
  }
  log(NCCL_LOG_INFO, NCCL_ENV, __FILE__, __LINE__, "example environment: %s, for version %d.%d.%d", name, major, minor,
      patch);
  return ncclSuccess;
}

static const char *get(const char *name)
{
  size_t n = strlen(name);
  const char *own = getenv(name);
  for (const char *line = text; own == NULL && line != NULL && line < text + size; line += strlen(line) + 1) {
    if (strncmp(line, name, n) == 0 && line[n] == '=') {
      return line + n + 1;
    }
  }
  return own;
}

static ncclResult_t finalize(void)
{
  free(text);
  text = NULL;
  size = 0;
  return ncclSuccess;
}

const ncclEnv_v2_t ncclEnvPlugin_v2 = {.name = "Example", .init = init, .finalize = finalize, .getEnv = get};
