# src/ becomes one set of objects, and from it lib/libnccl.so.2 and lib/libnccl_static.a. src/tools/ becomes tools/libtutti-tools.a: what only
# tools and tests call.

file(GLOB_RECURSE TUTTI_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c)
list(FILTER TUTTI_SOURCES EXCLUDE REGEX "_test\\.c$|/device/cuda/(kernels|work)/")
if(TUTTI_HAVE_CUDA) # tutti_cuda.cmake
  list(APPEND TUTTI_SOURCES ${TUTTI_CUDA_WORK})
endif()
set(TUTTI_KERNELS ${PROJECT_SOURCE_DIR}/src/device/host/reduce_kernels.c)
list(REMOVE_ITEM TUTTI_SOURCES ${TUTTI_KERNELS})
set(TUTTI_TOOLS_SOURCES ${TUTTI_SOURCES})
list(FILTER TUTTI_TOOLS_SOURCES INCLUDE REGEX "/src/tools/")
list(FILTER TUTTI_SOURCES EXCLUDE REGEX "/src/tools/")

# The network OFI needs libfabric's headers; the library itself is opened at run time.
find_path(fabric_INCLUDE rdma/fi_tagged.h)
mark_as_advanced(fabric_INCLUDE)
if(NOT fabric_INCLUDE)
  message(STATUS "libfabric not found: the network OFI is not built (scripts/deps names the package)")
  list(FILTER TUTTI_SOURCES EXCLUDE REGEX "/net/ofi/")
endif()

set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)

add_library(tutti_include INTERFACE)
target_include_directories(tutti_include INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)

add_library(tutti_objects OBJECT ${TUTTI_SOURCES})
target_link_libraries(tutti_objects PRIVATE tutti_include tutti_sodium tutti_expat Threads::Threads)
# Ranks predict and choose each for itself, maybe on different processors: with one rounding for each operation they come to the same.
target_compile_options(tutti_objects PRIVATE -ffp-contract=off)
if(TUTTI_HAVE_CUDA)
  target_compile_definitions(tutti_objects PRIVATE TUTTI_HAVE_CUDA)
endif()
set(TUTTI_OBJECTS $<TARGET_OBJECTS:tutti_objects>)
if(fabric_INCLUDE)
  target_include_directories(tutti_include SYSTEM INTERFACE ${fabric_INCLUDE})
  target_compile_definitions(tutti_include INTERFACE TUTTI_HAVE_OFI)
endif()

include(CheckCCompilerFlag)

# The places of variables in the vectoriser's loops would take a third of the compiler's time: lines have to suffice.
# The vectoriser cannot do its work under a sanitizer, and takes minutes to find out. The fuzz programs reduce nothing.
set(kernel_options -O3 -ffp-contract=off)
if(TUTTI_FUZZ)
  set(kernel_options -O0 -ffp-contract=off)
elseif(TUTTI_SANITIZE)
  set(kernel_options -O1 -ffp-contract=off)
elseif(NOT TUTTI_LIBRARY_ONLY)
  list(APPEND kernel_options $<$<CONFIG:RelWithDebInfo>:-g1>)
endif()
# gcc's frames for finding use after return are aligned to 32 bytes, vectors to 64 (gcc's bug 110027); nothing here returns addresses.
if(TUTTI_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL GNU)
  list(APPEND kernel_options --param=asan-use-after-return=0)
endif()
if(CMAKE_C_COMPILER_ID MATCHES Clang)
  list(APPEND kernel_options -Wno-pass-failed) # a loop that one instruction set cannot vectorise is no fault
endif()

# tutti_kernels(isa flags...): the reduction kernels once more, for one instruction set. No contraction into fused multiply-add:
# all sets give the same bits.
function(tutti_kernels isa)
  add_library(tutti_kernels_${isa} OBJECT ${TUTTI_KERNELS})
  target_compile_definitions(tutti_kernels_${isa} PRIVATE TT_ISA=${isa})
  target_compile_options(tutti_kernels_${isa} PRIVATE ${kernel_options} ${ARGN})
  target_link_libraries(tutti_kernels_${isa} PRIVATE tutti_include)
  set(TUTTI_OBJECTS ${TUTTI_OBJECTS} $<TARGET_OBJECTS:tutti_kernels_${isa}> PARENT_SCOPE)
endfunction()

if(EXISTS ${TUTTI_KERNELS})
  tutti_kernels(plain)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    tutti_kernels(avx2 -mavx2 -mfma -mf16c)
    set(avx512_options -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c)
    tutti_kernels(avx512 ${avx512_options})
    check_c_compiler_flag(-mavx512bf16 TUTTI_CC_AVX512BF16) # GCC 10, Clang 9
    if(TUTTI_CC_AVX512BF16)
      tutti_kernels(avx512bf16 ${avx512_options} -mavx512vbmi -mavx512bf16)
      target_compile_definitions(tutti_objects PRIVATE TT_HAVE_AVX512BF16)
    endif()
  else()
    message(STATUS "${CMAKE_SYSTEM_PROCESSOR}: plain reduction kernels only")
  endif()
endif()

add_library(nccl SHARED ${TUTTI_OBJECTS})
set_target_properties(nccl PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
target_link_options(nccl PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
if(NOT TUTTI_SANITIZE) # a sanitizer's own symbols come from the program
  target_link_options(nccl PRIVATE -Wl,-z,defs)
endif()

add_library(nccl_static STATIC ${TUTTI_OBJECTS})
set_target_properties(nccl_static PROPERTIES LINKER_LANGUAGE C)

foreach(library nccl nccl_static)
  target_include_directories(${library} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
# Where the library was found here says nothing about the machine where an installed package is used.
set(needed $<BUILD_INTERFACE:${sodium_LIBRARY}> $<INSTALL_INTERFACE:sodium>
  $<BUILD_INTERFACE:${expat_LIBRARY}> $<INSTALL_INTERFACE:expat>)
target_link_libraries(nccl PRIVATE ${needed} Threads::Threads ${CMAKE_DL_LIBS} m)
target_link_libraries(nccl_static PUBLIC ${needed} Threads::Threads ${CMAKE_DL_LIBS} m)

# Not installed: programs contain what they use of it.
add_library(tutti_tools STATIC ${TUTTI_TOOLS_SOURCES})
set_target_properties(tutti_tools PROPERTIES OUTPUT_NAME tutti-tools ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tools)
target_link_libraries(tutti_tools PUBLIC tutti_include nccl_static)
target_compile_options(tutti_tools PRIVATE -ffp-contract=off)

# The build tree looks like an installed NCCL (include/, lib/): NCCL_HOME may point to it.
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include SYMBOLIC)
