// host_priv.h: what the files of the tutti… functions share.
#pragma once
#include "device/work.h"
#include "tutti.h"

#define TUTTI_API __attribute__((visibility("default"))) ncclResult_t

// The error of function `what` for a pointer that must not be NULL.
ncclResult_t tt_api_null(const char *what);

// Queues `w` for function `what`. NULL: there was no memory for it. The entry is freed on an error.
ncclResult_t tt_api_push(const char *what, cudaStream_t stream, tt_work *w);
