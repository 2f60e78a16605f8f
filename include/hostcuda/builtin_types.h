// builtin_types.h: all types of the runtime, for programs that ask for them by this name.
#ifndef HOSTCUDA_BUILTIN_TYPES_H_
#define HOSTCUDA_BUILTIN_TYPES_H_

#include "device_types.h"
#include "driver_types.h"
#include "vector_types.h"

#endif
