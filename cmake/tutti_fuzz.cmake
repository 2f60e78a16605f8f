# tests/fuzz/fuzz_X.c, twice: over the committed corpus in every build (any compiler), and as a libFuzzer program in a
# clang build with TUTTI_FUZZ=ON (`make fuzz` makes one in build/fuzz).
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)

# tutti_fuzz_program(name source...): an executable over the static library and the perf engine.
function(tutti_fuzz_program name)
  add_executable(${name} ${ARGN})
  target_compile_options(${name} PRIVATE -Wno-missing-prototypes) # LLVMFuzzer… have no header
  target_link_libraries(${name} PRIVATE tutti_include)
  if(name MATCHES "^fuzz_flight")
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tools/trace)
    target_link_libraries(${name} PRIVATE trace_tool)
  endif()
  if(TARGET perf_engine)
    target_link_libraries(${name} PRIVATE perf_engine)
  endif()
  target_link_libraries(${name} PRIVATE tutti_tools)
endfunction()

if(NOT TARGET trace_tool) # it needs jansson
  list(FILTER fuzz_sources EXCLUDE REGEX "/fuzz_flight\\.c$")
endif()

add_custom_target(fuzz_programs) # all of them, and nothing that they don't need (scripts/fuzz)
foreach(file ${fuzz_sources})
  get_filename_component(name ${file} NAME_WE)
  string(REGEX REPLACE "^fuzz_" "" short ${name})
  if(TUTTI_FUZZ)
    tutti_fuzz_program(${name} ${file})
    add_dependencies(fuzz_programs ${name})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  else()
    tutti_fuzz_program(${name}_corpus ${file} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus_main.c)
    set_target_properties(${name}_corpus PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    add_test(NAME ${name}_corpus COMMAND ${name}_corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${short})
    tutti_test_properties(${name}_corpus fuzz ${TUTTI_UNIT_SECONDS})
  endif()
endforeach()
