// The recorder for version 4 of the interface.
#define RECORDER 4
#include "recorder.h"
