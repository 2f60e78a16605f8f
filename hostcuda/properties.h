// properties.h: what a host device is, in CUDA's words.
#pragma once
#include "hostcuda.h"

// Fills in all of CUDA 12's properties.
void hc_properties(struct cudaDeviceProp *p, int device);
// The value of an attribute; false for a number that is none.
bool hc_attribute(enum cudaDeviceAttr attr, int device, int *value);
