# What runs beside what, and what first. ctest counts in thirds of cores (scripts/run_tests). A test that is not named
# here takes two of them: its ranks wait for each other, and the test for its ranks, so that it has a core for two
# thirds of its time at most. Nothing here decides whether a test passes; a name too many or too few costs time.

# Programs of one thread: ThreadSanitizer, which finds nothing in them and makes them ten times slower, leaves them out (ctest says "Disabled").
set(TUTTI_LONE_TESTS
  coll_channels_test coll_nodes_test coll_zerocopy_test cuda_fences.sh cudasim_kernels_test cudasim_lines_test
  cudasim_ptx_alu_bits_test cudasim_ptx_alu_compare_test cudasim_ptx_alu_convert_test cudasim_ptx_alu_float_test
  cudasim_ptx_alu_int_test cudasim_ptx_barrier_test cudasim_ptx_fault_test cudasim_ptx_handover_test
  cudasim_ptx_line_test cudasim_ptx_litmus_test
  cudasim_ptx_parse_test cudasim_ptx_run_test cudasim_ptx_view_test cudasim_ptx_warp_test
  device_cuda_kernels_kernels_test device_host_reduce_test perf_verify_test tests_executor_test
  tests_machine_channels_test tools_topo_draw_json_test tools_topo_draw_test tools_topo_lint_loader_test
  tools_verify_test topo_browser.sh topo_explorer.sh topo_graph_files.sh topo_pack_test topo_search_test)

# They compute all of their time, and so do the programs of one thread above: a core.
set(TUTTI_COMPUTING_TESTS ${TUTTI_LONE_TESTS}
  counts.sh counts_growth.sh cudasim_kernels_step_test hostcuda_floats.sh install.sh tests_bell_model_test
  tests_bits_test tests_bits_test_network tests_one_sided_matrix_test_network tests_owner_model_test
  tests_owner_test tests_proxy_model_test tests_puts_model_test tests_reproducible_test tests_run_flag_model_test
  toy_algorithm.sh wheel.sh)

# They wait most of their time, for a limit of time to pass or for somebody who does not come: a third of a core.
set(TUTTI_WAITING_TESTS
  bootstrap_bootstrap_test bootstrap_faults_test bootstrap_roots_test cuda_orders.sh cudasim_queue_test
  cudasim_slice_test net_socket_faults_test perf_launch.sh perf_star_test proxy_probe_test proxy_service_test
  tests_cuda_kill_test tests_cuda_window_fail_test tests_deadlock_test tests_init_death_test
  tests_init_death_test_network tests_kill_test tests_kill_test_network tests_mismatch_matrix_test
  tests_mismatch_matrix_test_network tests_stall_matrix_test tests_stall_test tests_wrong_init_test)
if(NOT TUTTI_SANITIZE) # else they compute meanwhile
  list(APPEND TUTTI_WAITING_TESTS
    gpu_session_faults.sh namespaces.sh netns_faults.sh netns_late.sh netns_pxn.sh plugin_check.sh
    plugin_check_net.sh tests_hostcuda_fork_test tests_ras_test topo_browser.sh)
endif()

# Many ranks, or programs that start for seconds and promise to end a wait within half a second: two cores.
set(TUTTI_CROWDED_TESTS tests_crowd_test python.sh torch.sh)

# One at a time of those that
set(TUTTI_LOCKS ports memory manifest python)
set(TUTTI_LOCK_ports # look for a free port of this machine and give it to others
  collnet.sh namespaces.sh net_nodes.sh net_ofi.sh net_plugins.sh perf_launch.sh ras_schema.sh trace_clocks.sh)
set(TUTTI_LOCK_memory tests_bits_test tests_bits_test_network) # need memory for buffers of over four gigabytes
set(TUTTI_LOCK_manifest abi.sh hostcuda.sh install.sh)         # install the build tree, which writes into it what was installed
set(TUTTI_LOCK_python python.sh torch.sh)                      # write the package of the build tree (python/develop)

# What takes long begins first, in this order.
set(TUTTI_LONG_TESTS
  torch.sh python.sh tests_bits_test_network netns_faults.sh plugin_check_net.sh tests_wrong_init_test netns_pxn.sh
  tests_kill_test_network tests_cuda_window_fail_test tests_init_death_test_network tests_init_death_test
  tests_deadlock_test tests_cuda_comm_test tests_cuda_capture_ipc_test tests_cuda_capture_net_test
  tests_cuda_capture_test tests_cuda_plan_test netns_gpus.sh cuda_fences.sh install.sh tests_kill_test plugin_check.sh
  perf_launch.sh tests_one_sided_matrix_test_network tests_cuda_matrix_test tests_bits_test collnet.sh
  topo_graph_files.sh topo_explorer.sh wheel.sh tests_cuda_ipc_test tests_cuda_window_test tests_cuda_stop_test
  tests_cuda_kill_test netns_matrix.sh perf_cuda.sh gpu_session.sh tests_reproducible_test tests_owner_test net_nodes.sh
  net_ofi.sh tests_cuda_capture_fail_test gpu_session_faults.sh perf_matrix.sh tests_proxy_model_test
  tests_cuda_window_reset_test cuda_orders.sh tune.sh cuda_ptxas.sh tests_redops_test_network tests_abort_test
  tests_leak_test_network topo_search_test counts_growth.sh tests_blocks_test_network bootstrap_roots_test
  bootstrap_faults_test topo_browser.sh device_host_reduce_test tests_ras_test proxy_probe_test net_socket_faults_test
  tests_channels_test tests_executor_test tests_run_flag_model_test tools_verify_test coll_nodes_test
  cudasim_kernels_step_test cudasim_kernels_test tests_redops_test tests_blocks_test tests_leak_test
  tests_hostcuda_fork_test tests_cuda_litmus_test hostcuda_floats.sh examples.sh hostcuda.sh proxy_ring_test
  tests_net_test net_plugins.sh perf_star_test tests_cuda_reset_test device_cuda_kernels_kernels_test counts.sh
  namespaces.sh tests_stall_test tests_one_sided_test_network tests_extreme_params_test tests_wrong_use_test
  tests_one_sided_test proxy_service_test)

# tutti_test_schedule(name): its share of the machine, and its turn.
function(tutti_test_schedule name)
  set(thirds 2)
  if(name IN_LIST TUTTI_WAITING_TESTS)
    set(thirds 1)
  elseif(name IN_LIST TUTTI_COMPUTING_TESTS)
    set(thirds 3)
  elseif(name IN_LIST TUTTI_CROWDED_TESTS)
    set(thirds 6)
  endif()
  set(cost 0)
  list(FIND TUTTI_LONG_TESTS ${name} place)
  if(place GREATER_EQUAL 0)
    list(LENGTH TUTTI_LONG_TESTS long)
    math(EXPR cost "${long} - ${place}")
  endif()
  set_tests_properties(${name} PROPERTIES PROCESSORS ${thirds} COST ${cost})
  if(TUTTI_SANITIZE STREQUAL "thread" AND name IN_LIST TUTTI_LONE_TESTS)
    set_tests_properties(${name} PROPERTIES DISABLED TRUE)
  endif()
  foreach(lock ${TUTTI_LOCKS})
    if(name IN_LIST TUTTI_LOCK_${lock})
      set_tests_properties(${name} PROPERTIES RESOURCE_LOCK ${lock})
    endif()
  endforeach()
endfunction()
