# Tests. Labels: unit (beside the code), system (tests/), fuzz (tests/fuzz/ over its corpus). tests/README.md says how to run one.
enable_testing()

# What is known of the machines in tests/topologies/known, as tests read it: topologies/known/<machine>/<M>nodes.… in the build directory.
set(TUTTI_RESULTS ${PROJECT_SOURCE_DIR}/tests/topologies/known/results.tar.xz)
if(${TUTTI_RESULTS} IS_NEWER_THAN ${PROJECT_BINARY_DIR}/topologies/unpacked)
  file(ARCHIVE_EXTRACT INPUT ${TUTTI_RESULTS} DESTINATION ${PROJECT_BINARY_DIR}/topologies/known)
  file(TOUCH ${PROJECT_BINARY_DIR}/topologies/unpacked)
endif()

# Limits against hangs: a machine that has other things to do needs several times what a quiet one needs, instrumented programs several times that.
set(TUTTI_UNIT_SECONDS 300)
set(TUTTI_SYSTEM_SECONDS 900)
if(TUTTI_SANITIZE)
  set(TUTTI_UNIT_SECONDS 600)
  set(TUTTI_SYSTEM_SECONDS 1800)
endif()

include(tutti_schedule)
include(cudasim_driver)
include(fakenvml)

# tutti_test_properties(name label seconds): what all tests share. They run in the source root, with no NCCL_ variable of ours, and without the
# figures of this machine that its user may have (src/figures/).
set(TUTTI_TEST_ENVIRONMENT "TUTTI_BUILD=${PROJECT_BINARY_DIR};XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/no-cache")
function(tutti_test_properties name label seconds)
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${seconds} SKIP_RETURN_CODE 77
    ENVIRONMENT "${TUTTI_TEST_ENVIRONMENT}")
  tutti_test_schedule(${name})
endfunction()

# tutti_c_test(file label seconds): src/base/log_test.c becomes the program tests/base_log_test and the test of that name,
# tests/cudasim/ptx/warp_test.c cudasim_ptx_warp_test.
# Linked with the static library, so that hidden functions are in reach.
function(tutti_c_test file label seconds)
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${file})
  string(REGEX REPLACE "^src/" "" name ${name})
  string(REGEX REPLACE "^tests/cudasim/" "cudasim/" name ${name})
  string(REGEX REPLACE "\\.c$" "" name ${name})
  string(REPLACE "/" "_" name ${name})
  get_filename_component(folder ${file} DIRECTORY)
  add_executable(${name} ${file})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests ENABLE_EXPORTS ON)
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-Og>) # compiles twice as fast as -O2
  target_include_directories(${name} PRIVATE ${folder})
  target_link_libraries(${name} PRIVATE tutti_include tutti_cmocka)
  if(TARGET perf_engine AND NOT name MATCHES "^plugins_") # has a profiler of its own
    target_link_libraries(${name} PRIVATE perf_engine)
  endif()
  if(name MATCHES "hostcuda")
    target_link_libraries(${name} PRIVATE hostcuda_static)
  endif()
  if(name MATCHES "^tools_trace")
    target_link_libraries(${name} PRIVATE trace_tool)
  elseif(name MATCHES "^tools_topo")
    target_link_libraries(${name} PRIVATE topo_tool)
  elseif(name MATCHES "^bench_")
    target_link_libraries(${name} PRIVATE bench_full)
  elseif(name MATCHES "^plugins_profiler-trace")
    target_link_libraries(${name} PRIVATE trace_plugin_static tutti_jansson)
  endif()
  if(name MATCHES "cuda_plan|cuda_capture|cuda_profiler")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/device/cuda/work/port.c ${PROJECT_SOURCE_DIR}/src/device/cuda/work/step.c)
    target_compile_definitions(${name} PRIVATE TT_GPU_LAUNCH_BYTES=8192u TT_GPU_CTA_BYTES=1024u TT_GPU_LIST_BLOCK=4096u)
  endif()
  if(name MATCHES "cuda_window")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/device/cuda/work/rma.c)
    target_compile_definitions(${name} PRIVATE TT_GPU_PUT_BYTES=8192u)
  endif()
  if(name MATCHES "cuda_stop" AND TUTTI_SANITIZE) # a peer's step takes longer
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/device/cuda/work/owner.c)
    target_compile_definitions(${name} PRIVATE TT_GPU_OWNER_MS=30000u)
  endif()
  if(name MATCHES "cuda_kernels" AND NOT TUTTI_HAVE_CUDA)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/device/cuda/kernels/choose.c)
  endif()
  if(name MATCHES "^cudasim_")
    target_link_libraries(${name} PRIVATE cudasim_ptx)
  endif()
  if(name MATCHES "_model_test$")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/explore.c)
  endif()
  target_link_libraries(${name} PRIVATE tutti_tools)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  tutti_test_properties(${name} ${label} ${seconds})
endfunction()

file(GLOB_RECURSE unit_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*_test.c)
if(NOT fabric_INCLUDE)
  list(FILTER unit_tests EXCLUDE REGEX "/net/ofi/")
endif()
file(GLOB perf_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/perf/*_test.c)
file(GLOB_RECURSE system_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*_test.c)
if(NOT TARGET perf_engine)
  list(FILTER system_tests EXCLUDE REGEX "/cuda_perf_data_")
endif()
if(NOT TUTTI_HAVE_CUDA)
  list(FILTER system_tests EXCLUDE REGEX "/cudasim/kernels|/cuda_(plan|comm|ipc|capture|kernels|litmus|probe|perf_data|stop|fork|calls|reset|stall|matrix|kill|lost|streams|window|profiler)_")
endif()
file(GLOB script_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*.sh)

# They explore all interleavings themselves, on stacks that the sanitizers do not know.
if(TUTTI_SANITIZE)
  list(FILTER system_tests EXCLUDE REGEX "_model_test\\.c$")
endif()

if(TARGET perf_engine)
  list(APPEND unit_tests ${perf_tests})
endif()
if(TARGET tutti_jansson)
  file(GLOB bench_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*/*_test.c)
  file(GLOB trace_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/plugins/profiler-trace/*_test.c ${PROJECT_SOURCE_DIR}/tools/trace/*_test.c)
  list(APPEND unit_tests ${trace_tests} ${bench_tests})
endif()

# tests/plugins/x.c is the plugin tests/plugins/libx.so of the build directory: plugins that tests load.
file(GLOB test_plugins CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/plugins/*.c)
foreach(file ${test_plugins})
  get_filename_component(name ${file} NAME_WE)
  add_library(plugin_${name} MODULE ${file})
  set_target_properties(plugin_${name} PROPERTIES OUTPUT_NAME ${name} PREFIX lib C_VISIBILITY_PRESET default
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/plugins)
  target_link_libraries(plugin_${name} PRIVATE tutti_include m)
endforeach()

# tests/nccl_tests/libverifiable.so.0, which the programs of nccl-tests load for their check, from the values of perf/.
add_library(verifiable SHARED tests/nccl_tests/verifiable.c perf/pattern.c perf/types.c)
target_include_directories(verifiable PRIVATE ${PROJECT_SOURCE_DIR}/perf ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(verifiable PRIVATE nccl m Threads::Threads)
set_target_properties(verifiable PROPERTIES SOVERSION 0 C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/nccl_tests)

# Tests of tools/topo/ are linked with all of it but main.
file(GLOB tool_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/topo/*_test.c)
if(TARGET topo_tool)
  list(APPEND unit_tests ${tool_tests})
endif()

if(TARGET tutti_cmocka AND NOT TUTTI_FUZZ)
  foreach(file ${unit_tests})
    tutti_c_test(${file} unit ${TUTTI_UNIT_SECONDS})
  endforeach()
  foreach(file ${system_tests})
    tutti_c_test(${file} system ${TUTTI_SYSTEM_SECONDS})
  endforeach()
endif()

if(TUTTI_HAVE_CUDA AND TARGET tutti_cmocka AND NOT TUTTI_SANITIZE AND NOT TUTTI_FUZZ)
  include(cuda_orders)
endif()

# What holds in shared memory holds over the network: the same programs once more with every pair on sockets.
set(TUTTI_NETWORK_TESTS tests_blocks_test tests_churn_test tests_elastic_test tests_group_test tests_init_death_test tests_kill_test tests_leak_test
  tests_life_test tests_mismatch_matrix_test tests_one_sided_matrix_test tests_one_sided_test tests_redops_test tests_register_map_test
  tests_suspend_test)
if(NOT TUTTI_SANITIZE) # arithmetic, and minutes
  list(APPEND TUTTI_NETWORK_TESTS tests_bits_test)
endif()
foreach(name ${TUTTI_NETWORK_TESTS})
  if(TARGET ${name})
    add_test(NAME ${name}_network COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    tutti_test_properties(${name}_network system ${TUTTI_SYSTEM_SECONDS})
    set_tests_properties(${name}_network PROPERTIES
      ENVIRONMENT "${TUTTI_TEST_ENVIRONMENT};NCCL_P2P_DISABLE=1;NCCL_SHM_DISABLE=1")
  endif()
endforeach()

# And some where every rank is a node, and the network between them reduces.
foreach(name tests_group_test tests_life_test)
  if(TARGET ${name})
    add_test(NAME ${name}_collnet COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    tutti_test_properties(${name}_collnet system ${TUTTI_SYSTEM_SECONDS})
    set_tests_properties(${name}_collnet PROPERTIES
      ENVIRONMENT "${TUTTI_TEST_ENVIRONMENT};NCCL_P2P_DISABLE=1;NCCL_SHM_DISABLE=1;NCCL_NET_PLUGIN=${PROJECT_BINARY_DIR}/tests/plugins/libcollnet_v12.so;NCCL_COLLNET_ENABLE=1;NCCL_ALGO=allreduce:CollNetChain")
  endif()
endforeach()

# A script gets the build directory as $1 and exits with 77 when this build cannot run it.
if(TUTTI_BASH AND NOT TUTTI_FUZZ)
  foreach(file ${script_tests})
    get_filename_component(name ${file} NAME)
    add_test(NAME ${name} COMMAND ${TUTTI_BASH} ${file} ${PROJECT_BINARY_DIR} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    tutti_test_properties(${name} system ${TUTTI_SYSTEM_SECONDS})
  endforeach()
endif()

# What is left of the library when a process ends: here ThreadSanitizer watches for its second (scripts/check_sanitizers). CMake before 3.22 does not know
# this property: there it watches for a tenth.
if(TUTTI_SANITIZE STREQUAL "thread")
  foreach(name tests_life_test tests_life_test_network tests_life_test_collnet tests_unload_test)
    if(TEST ${name})
      set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION "TSAN_OPTIONS=string_append::atexit_sleep_ms=1000")
    endif()
  endforeach()
endif()
