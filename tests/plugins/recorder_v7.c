// The recorder for version 7 of the interface.
#define RECORDER 7
#include "recorder.h"
