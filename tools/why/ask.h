// ask.h: asks a job over RAS, for tutti-why.
#pragma once
#include <stdbool.h>

// Asks the job that listens on "host:port" or "[ipv6]:port" which rank waits for which, and prints its answer. False:
// there is none within 10 s, or it is an error; said why.
bool why_ask(const char *place);
