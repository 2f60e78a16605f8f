// properties.h: what a host device is, in CUDA's words.
//
// Programs size buffers by these values, divide by them, and choose data types by the compute capability (fp8
// from 9.0). So a host device has the limits that CUDA publishes for compute capability 9.0. It still runs no kernels:
// launches answer cudaErrorNoKernelImageForDevice.
#pragma once
#include "hostcuda.h"

// Fills in all of CUDA 12's properties.
void hc_properties(struct cudaDeviceProp *p, int device);
// The value of an attribute; false for a number that is none.
bool hc_attribute(enum cudaDeviceAttr attr, int device, int *value);
