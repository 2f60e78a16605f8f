# build/lib/fakenvml/libnvidia-ml.so.1: NVIDIA's management library for tests (tests/fakenvml). It needs no NVIDIA software.

add_library(fakenvml SHARED ${PROJECT_SOURCE_DIR}/tests/fakenvml/fakenvml.c)
target_link_libraries(fakenvml PRIVATE tutti_expat ${expat_LIBRARY} Threads::Threads)
set_target_properties(fakenvml PROPERTIES OUTPUT_NAME nvidia-ml SUFFIX .so.1 NO_SONAME ON C_VISIBILITY_PRESET default
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/fakenvml)
target_link_options(fakenvml PRIVATE -Wl,-soname,libnvidia-ml.so.1)
