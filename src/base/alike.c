// alike.c: see alike.h. Sorts pointers to the items; each run of equal ones is a kind.
#include "base/alike.h"

#include <stdlib.h>

#include "base/result.h"
#include "base/util.h"

ncclResult_t tt_alike(const void *items, size_t size, int n, int (*compare)(const void *, const void *), int *first)
{
  const char *base = items;
  const char **order = tt_calloc((size_t)n, sizeof(char *));
  if (order == NULL) {
    return tt_fail(ncclSystemError, "no memory to compare %d items", n);
  }
  for (int i = 0; i < n; i++) {
    order[i] = base + (size_t)i * size;
  }
  qsort(order, (size_t)n, sizeof(char *), compare);
  for (int i = 0, end; i < n; i = end) {
    const char *least = order[i];
    for (end = i + 1; end < n && compare(&order[i], &order[end]) == 0; end++) {
      least = TT_MIN(least, order[end]);
    }
    for (int k = i; k < end; k++) {
      first[(size_t)(order[k] - base) / size] = (int)((size_t)(least - base) / size);
    }
  }
  tt_free(order);
  return ncclSuccess;
}
