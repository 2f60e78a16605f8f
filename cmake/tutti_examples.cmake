# examples/NN_name/program.c, each a program in build/examples/ over libhostcuda.so and libnccl.so, as users link them. Those that use MPI
# are built and run by tests/examples.sh, as are the plugins in examples/plugins/.
file(GLOB example_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*/*.c)
list(FILTER example_sources EXCLUDE REGEX "/mpi\\.c$|/plugins/")

if(NOT TUTTI_FUZZ)
  foreach(file ${example_sources})
    get_filename_component(name ${file} NAME_WE)
    add_executable(example_${name} ${file})
    set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    target_link_libraries(example_${name} PRIVATE hostcuda Threads::Threads m)
  endforeach()
endif()
