# The perf programs: one engine (every other file of perf/) and one small file per collective.

set(TUTTI_COLLECTIVES all_reduce all_gather reduce_scatter broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube
  all_gather_v reduce_scatter_v gather_v scatter_v alltoall_v)

file(GLOB perf_engine_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/perf/*.c)
list(FILTER perf_engine_sources EXCLUDE REGEX "_test\\.c$")
list(REMOVE_ITEM perf_engine_sources ${PROJECT_SOURCE_DIR}/perf/mpi_module.c)
foreach(name ${TUTTI_COLLECTIVES})
  list(REMOVE_ITEM perf_engine_sources ${PROJECT_SOURCE_DIR}/perf/${name}.c)
endforeach()

# Ranks on GPUs: where the library has them.
if(TUTTI_HAVE_CUDA)
  tutti_ptx(perf_engine_sources perf_ptx perf_data ${PROJECT_SOURCE_DIR}/perf/data.cu)
else()
  list(REMOVE_ITEM perf_engine_sources ${PROJECT_SOURCE_DIR}/perf/cuda.c)
endif()

set(TUTTI_PERF_PROGRAMS "")
if(TARGET tutti_jansson AND perf_engine_sources)
  add_library(perf_engine STATIC ${perf_engine_sources})
  set_target_properties(perf_engine PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/perf)
  target_include_directories(perf_engine PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/perf
    ${PROJECT_SOURCE_DIR}/src) # base/types.def
  target_link_libraries(perf_engine PUBLIC tutti_jansson Threads::Threads ${CMAKE_DL_LIBS} m)
  if(TUTTI_HAVE_CUDA)
    target_compile_definitions(perf_engine PRIVATE TUTTI_HAVE_CUDA)
  endif()

  foreach(name ${TUTTI_COLLECTIVES})
    if(EXISTS ${PROJECT_SOURCE_DIR}/perf/${name}.c AND NOT TUTTI_FUZZ)
      add_executable(${name}_perf ${PROJECT_SOURCE_DIR}/perf/${name}.c)
      target_link_libraries(${name}_perf PRIVATE perf_engine nccl)
      # Found beside the library, before and after the installation.
      set_target_properties(${name}_perf PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib")
      set_target_properties(${name}_perf PROPERTIES ENABLE_EXPORTS ON) # the profiler in tuning.c
      list(APPEND TUTTI_PERF_PROGRAMS ${name}_perf)
    endif()
  endforeach()
endif()

# MPI for the perf programs, which are linked with none: lib/perf_mpi_openmpi.so and lib/perf_mpi_mpich.so, each for the MPI that was found,
# are opened when that MPI's mpirun has started the program. TUTTI_MPI_COMPILERS names the compiler wrappers to ask.
option(TUTTI_MPI "Build the perf programs' support of Open MPI and MPICH, where they are found" ON)
set(TUTTI_MPI_COMPILERS "mpicc.openmpi;mpicc.mpich;mpicc" CACHE STRING "MPI compiler wrappers; the first of each MPI is used")

# tutti_mpi_kind(flags kind): "openmpi", "mpich" or "": what the mpi.h of this wrapper's flags belongs to.
function(tutti_mpi_kind flags kind)
  file(WRITE ${PROJECT_BINARY_DIR}/mpi_kind.c "#include <mpi.h>\n")
  execute_process(COMMAND ${CMAKE_C_COMPILER} ${flags} -E -dM ${PROJECT_BINARY_DIR}/mpi_kind.c
    OUTPUT_VARIABLE macros ERROR_QUIET RESULT_VARIABLE status)
  set(${kind} "" PARENT_SCOPE)
  if(status EQUAL 0 AND macros MATCHES "#define OPEN_MPI ")
    set(${kind} openmpi PARENT_SCOPE)
  elseif(status EQUAL 0 AND macros MATCHES "#define MPICH_VERSION ")
    set(${kind} mpich PARENT_SCOPE)
  endif()
endfunction()

# tutti_mpi_object(wrapper): adds the shared object of this wrapper's MPI, unless there is one already.
function(tutti_mpi_object wrapper)
  execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE line ERROR_QUIET RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
  separate_arguments(words UNIX_COMMAND "${line}")
  if(NOT status EQUAL 0 OR NOT words)
    return()
  endif()
  list(REMOVE_AT words 0) # the compiler
  set(compile ${words})
  list(FILTER compile INCLUDE REGEX "^-[ID]")
  set(link ${words})
  list(FILTER link INCLUDE REGEX "^(-[Ll]|-Wl,)")
  set(places ${words})
  list(FILTER places INCLUDE REGEX "^-L")
  list(TRANSFORM places REPLACE "^-L" "")
  tutti_mpi_kind("${compile}" kind)
  if(NOT kind OR TARGET perf_mpi_${kind})
    return()
  endif()
  add_library(perf_mpi_${kind} MODULE ${PROJECT_SOURCE_DIR}/perf/mpi_module.c)
  list(TRANSFORM compile REPLACE "^-I" "-isystem")
  target_compile_options(perf_mpi_${kind} PRIVATE ${compile})
  target_link_libraries(perf_mpi_${kind} PRIVATE ${link})
  set_target_properties(perf_mpi_${kind} PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${places}")
  install(TARGETS perf_mpi_${kind} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${kind})
endfunction()

if(TUTTI_PERF_PROGRAMS AND TUTTI_MPI)
  foreach(name ${TUTTI_MPI_COMPILERS})
    find_program(TUTTI_WRAPPER_${name} ${name} HINTS /usr/lib64/openmpi/bin /usr/lib64/mpich/bin)
    mark_as_advanced(TUTTI_WRAPPER_${name})
    if(TUTTI_WRAPPER_${name})
      tutti_mpi_object(${TUTTI_WRAPPER_${name}})
    endif()
  endforeach()
  foreach(kind openmpi mpich)
    if(TARGET perf_mpi_${kind})
      message(STATUS "${kind} found: its mpirun starts the perf programs (lib/perf_mpi_${kind}.so)")
    else()
      message(STATUS "${kind} not found: under its mpirun the perf programs use its variables only (scripts/deps names the package)")
    endif()
  endforeach()
endif()
