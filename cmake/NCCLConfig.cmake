# find_package(NCCL): NCCL::nccl (libnccl.so.2), NCCL::nccl_static.
include(CMakeFindDependencyMacro)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/NCCLTargets.cmake)
