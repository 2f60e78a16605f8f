# hostcuda/ becomes lib/libhostcuda.so.1, and lib/cuda/libcudart.so.12 and .13: the CUDA runtime's names over libnccl.so.2; and
# lib/cuda/libcuda.so.1: some of the driver's. lib/cuda looks like a CUDA_HOME (include, lib64).

file(GLOB HOSTCUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/hostcuda/*.c)
set(HOSTCUDA_ABI_SOURCE ${PROJECT_SOURCE_DIR}/hostcuda/abi.c)
list(REMOVE_ITEM HOSTCUDA_SOURCES ${HOSTCUDA_ABI_SOURCE})

add_library(hostcuda_include INTERFACE)
target_include_directories(hostcuda_include INTERFACE ${PROJECT_SOURCE_DIR}/include/hostcuda ${PROJECT_SOURCE_DIR}/include
  ${PROJECT_SOURCE_DIR}/hostcuda)

add_library(hostcuda_objects OBJECT ${HOSTCUDA_SOURCES})
target_link_libraries(hostcuda_objects PRIVATE hostcuda_include Threads::Threads)

# hostcuda_library(target abi node): the objects and abi.c for one ABI, symbols under the version `node` ("": none). What is exported:
# HOSTCUDA_NAMES.
function(hostcuda_library target abi node)
  set(HOSTCUDA_NODE "${node}")
  configure_file(${PROJECT_SOURCE_DIR}/hostcuda/exports.map.in ${PROJECT_BINARY_DIR}/hostcuda/${target}.map @ONLY)
  add_library(${target} SHARED ${HOSTCUDA_ABI_SOURCE} $<TARGET_OBJECTS:hostcuda_objects>)
  target_compile_definitions(${target} PRIVATE HOSTCUDA_ABI=${abi})
  target_link_libraries(${target} PRIVATE hostcuda_include nccl Threads::Threads)
  target_link_options(${target} PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/hostcuda/${target}.map -Wl,-Bsymbolic-functions)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C LINK_DEPENDS ${PROJECT_BINARY_DIR}/hostcuda/${target}.map
    BUILD_WITH_INSTALL_RPATH ON)
  if(NOT TUTTI_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()

set(HOSTCUDA_NAMES "cuda*; __cuda*;")
hostcuda_library(hostcuda 12 "")
set_target_properties(hostcuda PROPERTIES VERSION 1.${PROJECT_VERSION} SOVERSION 1 INSTALL_RPATH "$ORIGIN")
target_include_directories(hostcuda INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include/hostcuda> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/hostcuda>)
target_link_libraries(hostcuda INTERFACE nccl)

# Full names of their own: both would want to be libcudart.so. That name points to the one with the layouts of our headers.
set(HOSTCUDA_FOLDER ${PROJECT_BINARY_DIR}/lib/cuda)
foreach(abi 12 13)
  hostcuda_library(cudart${abi} ${abi} libcudart.so.${abi})
  set_target_properties(cudart${abi} PROPERTIES OUTPUT_NAME cudart SUFFIX .so.${abi} NO_SONAME ON INSTALL_RPATH "$ORIGIN/.."
    LIBRARY_OUTPUT_DIRECTORY ${HOSTCUDA_FOLDER})
  target_link_options(cudart${abi} PRIVATE -Wl,-soname,libcudart.so.${abi})
endforeach()

# The driver's names, without versions as in the real one.
set(HOSTCUDA_NAMES "cu[A-Z]*;")
hostcuda_library(hostcu 12 "")
set_target_properties(hostcu PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 NO_SONAME ON INSTALL_RPATH "$ORIGIN/.."
  LIBRARY_OUTPUT_DIRECTORY ${HOSTCUDA_FOLDER})
target_link_options(hostcu PRIVATE -Wl,-soname,libcuda.so.1)

file(MAKE_DIRECTORY ${HOSTCUDA_FOLDER})
file(CREATE_LINK libcuda.so.1 ${HOSTCUDA_FOLDER}/libcuda.so SYMBOLIC)
file(STRINGS ${PROJECT_SOURCE_DIR}/include/hostcuda/cuda_runtime_api.h HOSTCUDA_MAJOR REGEX "define CUDART_VERSION [0-9]+")
string(REGEX REPLACE ".* ([0-9]+)[0-9][0-9][0-9]$" "\\1" HOSTCUDA_MAJOR "${HOSTCUDA_MAJOR}")
file(CREATE_LINK libcudart.so.${HOSTCUDA_MAJOR} ${HOSTCUDA_FOLDER}/libcudart.so SYMBOLIC)
file(CREATE_LINK . ${HOSTCUDA_FOLDER}/lib64 SYMBOLIC)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include/hostcuda ${HOSTCUDA_FOLDER}/include SYMBOLIC)

# For the tests, which link with the static library.
add_library(hostcuda_static STATIC EXCLUDE_FROM_ALL ${HOSTCUDA_ABI_SOURCE} $<TARGET_OBJECTS:hostcuda_objects>)
target_link_libraries(hostcuda_static PUBLIC hostcuda_include)
set_target_properties(hostcuda_static PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/hostcuda)

# Installation: as in the build tree, with relative paths.
install(TARGETS hostcuda EXPORT NCCLTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT dev INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS cudart12 cudart13 hostcu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/cuda COMPONENT library)
file(RELATIVE_PATH to_headers /prefix/${CMAKE_INSTALL_LIBDIR}/cuda /prefix/${CMAKE_INSTALL_INCLUDEDIR}/hostcuda)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/install)
file(CREATE_LINK ${to_headers} ${PROJECT_BINARY_DIR}/install/include SYMBOLIC)
install(FILES ${HOSTCUDA_FOLDER}/libcudart.so ${HOSTCUDA_FOLDER}/libcuda.so ${HOSTCUDA_FOLDER}/lib64 ${PROJECT_BINARY_DIR}/install/include
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cuda COMPONENT dev)

set(PC_PREFIX ../..)
set(PC_INCLUDE include)
configure_file(${PROJECT_SOURCE_DIR}/cmake/hostcuda.pc.in ${PROJECT_BINARY_DIR}/lib/pkgconfig/hostcuda.pc @ONLY)
file(RELATIVE_PATH PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(PC_INCLUDE ${CMAKE_INSTALL_INCLUDEDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/hostcuda.pc.in ${PROJECT_BINARY_DIR}/install/hostcuda.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/install/hostcuda.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
