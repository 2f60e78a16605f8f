// A library with tables of two kinds, whose content nobody looks at. Its network is of a version that is too old to be
// used.
const void *const ncclTunerPlugin_v3[8] = {"two kinds"};
const void *const ncclTunerPlugin_v2[8] = {"two kinds, old"};
const void *const ncclNetPlugin_v5[8] = {"two kinds"};
