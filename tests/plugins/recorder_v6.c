// The recorder for version 6 of the interface.
#define RECORDER 6
#include "recorder.h"
