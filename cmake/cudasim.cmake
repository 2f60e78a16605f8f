# tests/cudasim: what tests of the CUDA row need on machines without a GPU. cudasim_ptx runs PTX (tests/cudasim/ptx/README.md).
file(GLOB cudasim_ptx_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cudasim/ptx/*.c)
list(FILTER cudasim_ptx_sources EXCLUDE REGEX "_test\\.c$")
add_library(cudasim_ptx STATIC EXCLUDE_FROM_ALL ${cudasim_ptx_sources})
target_include_directories(cudasim_ptx PUBLIC ${PROJECT_SOURCE_DIR}/tests/cudasim/ptx)
target_compile_options(cudasim_ptx PRIVATE -O2 -ffp-contract=off)
target_link_libraries(cudasim_ptx PUBLIC m)
set_target_properties(cudasim_ptx PROPERTIES C_STANDARD 11 POSITION_INDEPENDENT_CODE ON)
