// The test tuner of version 2.
#define VERSION 2
#include "tuner.h"
