// modules.h: the kernels as they are in this program: texts of PTX, each a module for the driver.
#pragma once

// The module of that name: `step` (copy), `bits` (bitwise, logical1, …), and for each type, by
// its name in base/types.def as `Float16`, the one that has its `combine`; `walk_step`, `walk_Float16` and so on: the
// same kernels as walks. NULL: there is none. Pure.
const char *tt_ptx_find(const char *name);

// The name of module `i`, from 0 on; NULL: there are no more. Pure.
const char *tt_ptx_name(int i);
