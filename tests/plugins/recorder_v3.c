// The recorder for version 3 of the interface.
#define RECORDER 3
#include "recorder.h"
