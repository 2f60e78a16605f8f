# bench/*.c, each a program in build/bench/ over the static library; bench/full/ is one: the report of `make bench-full`. Built by `make bench`
# and `make bench-full` only.
file(GLOB bench_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.c)

add_custom_target(bench_programs)
foreach(file ${bench_sources})
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${file} ${PROJECT_SOURCE_DIR}/bench/coll/machine.c)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  target_link_libraries(${name} PRIVATE tutti_tools)
  add_dependencies(bench_programs ${name})
endforeach()

# bench/counts, bench/growth: instructions of small calls, and of many objects, through the shared library, as users have it; bench/inside: of many objects of
# its functions, over the static one. A test where
# bench/counts/table is about this kind of build. (With clang they differ by 5%, but valgrind reads its debug information only with -gdwarf-4.)
if(NOT TUTTI_SANITIZE AND NOT TUTTI_FUZZ)
  foreach(name counts growth inside)
    add_executable(${name} ${PROJECT_SOURCE_DIR}/bench/counts/${name}.c)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
    set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON) # the profiler in growth
    target_compile_options(${name} PRIVATE -O1) # at -O3 its function counted has copies; its own instructions do not count
    target_link_libraries(${name} PRIVATE tutti_include $<IF:$<STREQUAL:${name},inside>,tutti_tools,nccl> Threads::Threads ${CMAKE_DL_LIBS})
  endforeach()
  if(CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_BUILD_TYPE MATCHES "^(RelWithDebInfo|Release)$" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    add_test(NAME counts.sh COMMAND bench/counts.sh ${PROJECT_BINARY_DIR} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    tutti_test_properties(counts.sh system ${TUTTI_SYSTEM_SECONDS})
    add_test(NAME counts_growth.sh COMMAND bench/counts.sh --growth ${PROJECT_BINARY_DIR} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    tutti_test_properties(counts_growth.sh system ${TUTTI_SYSTEM_SECONDS})
  endif()
endif()

# All of the report but main, for its tests too.
file(GLOB full_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/full/*.c)
list(FILTER full_sources EXCLUDE REGEX "_test\\.c$|/main\\.c$")
if(TARGET tutti_jansson)
  add_library(bench_full STATIC EXCLUDE_FROM_ALL ${full_sources} ${PROJECT_SOURCE_DIR}/bench/coll/stats.c
    ${PROJECT_SOURCE_DIR}/bench/coll/machine.c)
  set_target_properties(bench_full PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  target_link_libraries(bench_full PUBLIC tutti_jansson m)
  add_executable(coll_full EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/full/main.c)
  set_target_properties(coll_full PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  target_link_libraries(coll_full PRIVATE bench_full)
endif()
