// The test environment of version 2.
#define VERSION 2
#include "env.h"
