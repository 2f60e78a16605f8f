# find_package(NCCL): NCCL::nccl (libnccl.so.2), NCCL::nccl_static; NCCL_INCLUDE_DIRS and NCCL_LIBRARIES for projects that use variables.
include(CMakeFindDependencyMacro)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/NCCLTargets.cmake)
get_target_property(NCCL_INCLUDE_DIRS NCCL::nccl INTERFACE_INCLUDE_DIRECTORIES)
list(REMOVE_DUPLICATES NCCL_INCLUDE_DIRS)
set(NCCL_LIBRARIES NCCL::nccl)
