// The test tuner of version 3.
#define VERSION 3
#include "tuner.h"
