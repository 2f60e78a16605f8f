// The recorder for version 5 of the interface.
#define RECORDER 5
#include "recorder.h"
