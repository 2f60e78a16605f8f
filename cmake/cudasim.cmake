# tests/cudasim: what tests of the CUDA row need on machines without a GPU. cudasim_ptx runs PTX (tests/cudasim/ptx/README.md).
file(GLOB cudasim_ptx_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cudasim/ptx/*.c)
list(FILTER cudasim_ptx_sources EXCLUDE REGEX "_test\\.c$")
# cudasim_machine, which the driver has, is the same without a sanitizer: each instruction of a kernel is dozens of the
# host's. Its own tests, with cudasim_ptx, look for its faults. ThreadSanitizer still sees its atomic operations: they
# order kernels and threads of the host.
set(cudasim_ptx_options -O2 -ffp-contract=off)
set(cudasim_machine_options ${cudasim_ptx_options})
if(TUTTI_SANITIZE STREQUAL "thread" AND CMAKE_C_COMPILER_ID MATCHES Clang)
  foreach(what memory-accesses memintrinsics func-entry-exit)
    list(APPEND cudasim_machine_options "SHELL:-mllvm -tsan-instrument-${what}=0")
  endforeach()
elseif(TUTTI_SANITIZE AND NOT TUTTI_SANITIZE STREQUAL "thread")
  list(APPEND cudasim_machine_options -fno-sanitize=all)
endif()
foreach(library cudasim_ptx cudasim_machine)
  add_library(${library} STATIC EXCLUDE_FROM_ALL ${cudasim_ptx_sources})
  target_include_directories(${library} PUBLIC ${PROJECT_SOURCE_DIR}/tests/cudasim/ptx)
  target_compile_options(${library} PRIVATE ${${library}_options})
  target_link_libraries(${library} PUBLIC m)
  set_target_properties(${library} PROPERTIES C_STANDARD 11 POSITION_INDEPENDENT_CODE ON)
endforeach()
