// The test tuner of version 4.
#define VERSION 4
#include "tuner.h"
