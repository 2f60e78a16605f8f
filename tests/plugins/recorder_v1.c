// The recorder for version 1 of the interface.
#define RECORDER 1
#include "recorder.h"
