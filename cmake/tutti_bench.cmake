# bench/*.c, each a program in build/bench/ over the static library. Built by `make bench` only.
file(GLOB bench_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.c)

add_custom_target(bench_programs)
foreach(file ${bench_sources})
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${file})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  target_link_libraries(${name} PRIVATE tutti_include nccl_static)
  add_dependencies(bench_programs ${name})
endforeach()
