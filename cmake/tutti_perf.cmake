# The perf programs: one engine (every other file of perf/) and one small file per collective.

set(TUTTI_COLLECTIVES all_reduce all_gather reduce_scatter broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube)

file(GLOB perf_engine_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/perf/*.c)
list(FILTER perf_engine_sources EXCLUDE REGEX "_test\\.c$")
foreach(name ${TUTTI_COLLECTIVES})
  list(REMOVE_ITEM perf_engine_sources ${PROJECT_SOURCE_DIR}/perf/${name}.c)
endforeach()

set(TUTTI_PERF_PROGRAMS "")
if(TARGET tutti_jansson AND perf_engine_sources)
  add_library(perf_engine STATIC ${perf_engine_sources})
  set_target_properties(perf_engine PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/perf)
  target_include_directories(perf_engine PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/perf)
  target_link_libraries(perf_engine PUBLIC tutti_jansson Threads::Threads m)

  foreach(name ${TUTTI_COLLECTIVES})
    if(EXISTS ${PROJECT_SOURCE_DIR}/perf/${name}.c AND NOT TUTTI_FUZZ)
      add_executable(${name}_perf ${PROJECT_SOURCE_DIR}/perf/${name}.c)
      target_link_libraries(${name}_perf PRIVATE perf_engine nccl)
      # Found beside the library, before and after the installation.
      set_target_properties(${name}_perf PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib")
      list(APPEND TUTTI_PERF_PROGRAMS ${name}_perf)
    endif()
  endforeach()
endif()
