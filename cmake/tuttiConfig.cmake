# find_package(tutti): tutti::tutti, which is NCCL::nccl of the same installation.
include(${CMAKE_CURRENT_LIST_DIR}/../NCCL/NCCLConfig.cmake)
if(NOT TARGET tutti::tutti)
  add_library(tutti::tutti INTERFACE IMPORTED)
  target_link_libraries(tutti::tutti INTERFACE NCCL::nccl)
endif()
