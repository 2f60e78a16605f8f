# The kernels for GPUs: src/device/cuda/kernels/*.cu become PTX in cuda/ of the build directory, and that texts in the library.
# clang or nvcc compiles them; no SDK is needed with clang. Without them the library has no CUDA device.
include(tutti_embed)

set(TUTTI_CUDA AUTO CACHE STRING "ON | OFF | AUTO: the CUDA device; AUTO: where clang or nvcc can make its kernels")
set(kernels ${PROJECT_SOURCE_DIR}/src/device/cuda/kernels)
set(ptx ${PROJECT_BINARY_DIR}/cuda)
# The row of the table of devices, and what needs the kernels.
file(GLOB TUTTI_CUDA_WORK CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/work/*.c)
file(GLOB kernel_headers CONFIGURE_DEPENDS ${kernels}/*.h ${PROJECT_SOURCE_DIR}/src/device/reduce_*.h ${PROJECT_SOURCE_DIR}/perf/data.h
  ${PROJECT_SOURCE_DIR}/perf/mix.h)

set(with_clang -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib -Wno-unknown-cuda-version -ffp-contract=off -S)
set(with_nvcc -ptx -arch=compute_75 -fmad=false) # nvcc 13 knows nothing older

# tutti_ptx_compiler(NAME FLAGS): makes this compiler the one for kernels, if it is there and can compile them.
function(tutti_ptx_compiler name)
  find_program(TUTTI_${name} ${name})
  mark_as_advanced(TUTTI_${name})
  if(ptx_command OR NOT TUTTI_${name})
    return()
  endif()
  set(command ${TUTTI_${name}} ${ARGN} -O2 -DTT_PTX -I${PROJECT_SOURCE_DIR}/src)
  file(MAKE_DIRECTORY ${ptx})
  execute_process(COMMAND ${command} ${kernels}/step.cu -o ${ptx}/probe RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed EQUAL 0)
    set(ptx_command ${command} PARENT_SCOPE)
  endif()
endfunction()

if(TUTTI_CUDA)
  tutti_ptx_compiler(clang ${with_clang})
  tutti_ptx_compiler(nvcc ${with_nvcc})
  if(NOT ptx_command AND TUTTI_CUDA STREQUAL AUTO)
    message(STATUS "neither clang with NVPTX nor nvcc: the CUDA device is not built (scripts/deps names the package)")
  elseif(NOT ptx_command)
    message(FATAL_ERROR "TUTTI_CUDA=${TUTTI_CUDA}: neither clang nor nvcc makes PTX of ${kernels}/step.cu")
  endif()
endif()

# tutti_ptx(LIST TEXT NAME FILE options...): the module NAME, from a file with its whole path; adds to LIST a source with the C text TEXT.
function(tutti_ptx list text name file)
  add_custom_command(OUTPUT ${ptx}/${name}.ptx
    COMMAND ${ptx_command} ${ARGN} ${file} -o ${ptx}/${name}.raw
    COMMAND ${CMAKE_COMMAND} -DIN=${ptx}/${name}.raw -DOUT=${ptx}/${name}.ptx -P ${PROJECT_SOURCE_DIR}/cmake/ptx.cmake
    DEPENDS ${file} ${kernel_headers} ${PROJECT_SOURCE_DIR}/cmake/ptx.cmake VERBATIM)
  tutti_embed(${list} ${text} ${ptx}/${name}.ptx)
  set(${list} ${${list}} PARENT_SCOPE)
endfunction()

if(ptx_command)
  tutti_ptx(TUTTI_PTX_SOURCES tt_ptx_step step ${kernels}/step.cu)
  tutti_ptx(TUTTI_PTX_SOURCES tt_ptx_one_sided one_sided ${kernels}/one_sided.cu)
  tutti_ptx(TUTTI_PTX_SOURCES tt_ptx_bits bits ${kernels}/bits.cu)
  tutti_ptx(TUTTI_PTX_SOURCES tt_ptx_walk_step walk_step ${kernels}/step.cu -DTT_WALK)
  tutti_ptx(TUTTI_PTX_SOURCES tt_ptx_walk_bits walk_bits ${kernels}/bits.cu -DTT_WALK)
  file(STRINGS ${PROJECT_SOURCE_DIR}/src/base/types.def types REGEX "^T\\(")
  foreach(row ${types})
    string(REGEX REPLACE "^T\\(([A-Za-z0-9]+).*" "\\1" type "${row}")
    tutti_ptx(TUTTI_PTX_SOURCES tt_ptx_${type} ${type} ${kernels}/combine.cu -DTT_TYPE=${type})
    tutti_ptx(TUTTI_PTX_SOURCES tt_ptx_walk_${type} walk_${type} ${kernels}/combine.cu -DTT_TYPE=${type} -DTT_WALK)
  endforeach()
  set(TUTTI_HAVE_CUDA ON)
  list(APPEND TUTTI_CUDA_WORK ${TUTTI_PTX_SOURCES} ${kernels}/modules.c ${kernels}/choose.c)
else()
  set(TUTTI_HAVE_CUDA OFF)
  file(REMOVE_RECURSE ${ptx}) # of an earlier configuration: tests would take it for this one's
endif()
