// random.h: random bytes good enough for secrets.
#pragma once
#include <stddef.h>

// Fills `data` with `size` bytes from the kernel's generator. Waits only before the kernel has gathered its first
// entropy (early boot). Any thread. Ends the process when the kernel has no generator: a guessable secret would be
// worse.
void tt_random(void *data, size_t size);
