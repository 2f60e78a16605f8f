// The recorder for version 2 of the interface.
#define RECORDER 2
#include "recorder.h"
