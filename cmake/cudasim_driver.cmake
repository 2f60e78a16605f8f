# build/lib/cudasim/libcuda.so.1: a CUDA driver for tests, on host memory (tests/cudasim). It needs no CUDA.

file(GLOB CUDASIM_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cudasim/*.c)
list(FILTER CUDASIM_SOURCES EXCLUDE REGEX "_test\\.c$")

add_library(cudasim SHARED ${CUDASIM_SOURCES})
target_include_directories(cudasim PRIVATE ${PROJECT_SOURCE_DIR}/tests/cudasim ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(cudasim PRIVATE cudasim_machine Threads::Threads ${CMAKE_DL_LIBS} m)
set_target_properties(cudasim PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 NO_SONAME ON C_VISIBILITY_PRESET default
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/cudasim LINK_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cudasim/exports.map)
# Its threads stay until the process ends: so does its code.
target_link_options(cudasim PRIVATE -Wl,-soname,libcuda.so.1 -Wl,-z,nodelete -Wl,-Bsymbolic-functions
  -Wl,--version-script=${PROJECT_SOURCE_DIR}/tests/cudasim/exports.map)
