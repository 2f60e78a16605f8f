// diagnose.c: a job that says by itself why it stands still. A rank never makes its call; a watcher asks the library
// what the others wait for, and the call itself ends with an error instead of waiting for ever. Only where the library
// is Tutti: tuttiCommDiagnose and the option are in tutti.h.
#include "../check.h"
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <tutti.h>

enum { RANKS = 2, COUNT = 1000, PATIENCE_MS = 1500 };

static ncclComm_t comm[RANKS];
static float data[COUNT];

// The value of "key":"…" behind `from` in a JSON text, up to the next quote.
static void text_of(const char *from, const char *key, char *out, size_t size)
{
  char name[32];
  snprintf(name, sizeof name, "\"%s\":\"", key);
  const char *at = strstr(from, name);
  at = at != NULL ? at + strlen(name) : "";
  snprintf(out, size, "%.*s", (int)strcspn(at, "\""), at);
}

// Asks what rank 0 waits for, every 100 ms, until there is an answer. Any thread may ask, also while others wait. The
// result: was the cause found?
static void *watch(void *arg)
{
  static const struct timespec pause = {0, 100000000};
  int *found = arg;
  for (int i = 0; i < 100 && !*found; i++) {
    char *json, class[32] = "", text[512];
    nanosleep(&pause, NULL);
    NCCL(tuttiCommDiagnose(comm[0], &json));
    const char *verdict = strstr(json, "\"verdict\":");
    if (verdict != NULL) {
      text_of(verdict, "class", class, sizeof class);
      text_of(verdict, "text", text, sizeof text);
    }
    if (class[0] != '\0' && strcmp(class, "none") != 0) {
      printf("after %d ms: %s: %s\n", (i + 1) * 100, class, text);
      *found = strcmp(class, "late") == 0 && strstr(verdict, "\"cause\":1") != NULL;
    }
    free(json);
  }
  return NULL;
}

// This call may wait without progress for PATIENCE_MS; NCCL_STALL_ERROR_MS says it for all calls of a job.
static ncclResult_t impatient_all_reduce(cudaStream_t stream)
{
  ncclConfigExt_t patience = {.key = {.vendorId = TUTTI_VENDOR_ID, .optionId = TUTTI_OPTION_STALL_ERROR_MS},
                              .val = {.i = PATIENCE_MS}};
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = &patience;
  return ncclAllReduceConfig(data, data, COUNT, ncclFloat, ncclSum, comm[0], stream, &config);
}

int main(void)
{
  pthread_t watcher;
  cudaStream_t stream;
  ncclResult_t state = ncclSuccess;
  int found = 0;
  NCCL(ncclCommInitAll(comm, RANKS, NULL));
  CUDA(cudaSetDevice(0));
  CUDA(cudaStreamCreate(&stream));

  // Rank 0 calls; rank 1 has taken another branch.
  NCCL(impatient_all_reduce(stream));
  if (pthread_create(&watcher, NULL, watch, &found) != 0) {
    return 1;
  }
  cudaError_t waited = cudaStreamSynchronize(stream);
  NCCL(ncclCommGetAsyncError(comm[0], &state));
  pthread_join(watcher, NULL);
  printf("the wait ended: %s\n", ncclGetErrorString(state));

  for (int i = 0; i < RANKS; i++) {
    NCCL(ncclCommAbort(comm[i]));
  }
  CUDA(cudaStreamDestroy(stream));
  int right = found && (waited != cudaSuccess || state != ncclSuccess) && state == ncclTimeout;
  printf("%s\n", right ? "the late rank was named" : "wrong");
  return !right;
}
