// The test environment of version 1.
#define VERSION 1
#include "env.h"
