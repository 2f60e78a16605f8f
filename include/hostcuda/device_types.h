// device_types.h: the ways to round.
#ifndef HOSTCUDA_DEVICE_TYPES_H_
#define HOSTCUDA_DEVICE_TYPES_H_

enum cudaRoundMode {
  cudaRoundNearest = 0, // to the nearest, ties to the even one
  cudaRoundZero = 1,
  cudaRoundPosInf = 2,
  cudaRoundMinInf = 3,
};

#endif
