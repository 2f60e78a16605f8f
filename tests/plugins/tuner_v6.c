// The test tuner of version 6.
#define VERSION 6
#include "tuner.h"
