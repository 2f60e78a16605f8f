// left_out.h: for sources with a switch at each place of `places`.
#pragma once
#include <stdbool.h>

// Does the environment (CUDA_LEFT_OUT) name this place? Any thread.
bool tt_left_out(const char *place);
