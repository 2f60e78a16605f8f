// An environment plugin that has nothing but its name.
const void *const ncclEnvPlugin_v2[4] = {"empty"};
