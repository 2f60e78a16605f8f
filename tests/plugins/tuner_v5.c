// The test tuner of version 5.
#define VERSION 5
#include "tuner.h"
