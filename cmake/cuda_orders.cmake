# The tests of ranks on GPUs once more, with a switch at each place of tests/cuda_orders/places: tests/cuda_orders.sh leaves one out at a time.
set(orders_from ${PROJECT_SOURCE_DIR}/tests/cuda_orders)
set(orders_to ${PROJECT_BINARY_DIR}/cuda_orders)
set(orders_sources)
foreach(source stream.c work/fifos.c work/hold.c work/inbox.c work/port.c work/record.c work/step.c work/submit.c work/walk.c)
  get_filename_component(name ${source} NAME)
  set(from ${PROJECT_SOURCE_DIR}/src/device/cuda/${source})
  add_custom_command(OUTPUT ${orders_to}/${name}
    COMMAND awk -v file=${name} -v out=${orders_to}/${name} -f ${orders_from}/leave_out.awk ${orders_from}/places ${from}
    DEPENDS ${orders_from}/leave_out.awk ${orders_from}/places ${from} VERBATIM)
  list(APPEND orders_sources ${orders_to}/${name})
endforeach()
file(MAKE_DIRECTORY ${orders_to})

# Two forms of the sources: with the small blocks that tests of plans have, and as they are.
foreach(form small whole)
  add_library(cuda_orders_${form} OBJECT ${orders_sources} ${orders_from}/left_out.c)
  target_compile_options(cuda_orders_${form} PRIVATE -include ${orders_from}/left_out.h)
  target_link_libraries(cuda_orders_${form} PRIVATE tutti_include)
endforeach()
target_compile_definitions(cuda_orders_small PRIVATE TT_GPU_LAUNCH_BYTES=8192u TT_GPU_LIST_BLOCK=4096u)

foreach(test plan:small capture:small comm:whole ipc:whole streams:whole)
  string(REPLACE ":" ";" test ${test})
  list(GET test 0 name)
  list(GET test 1 form)
  add_executable(orders_${name} tests/cuda_${name}_test.c $<TARGET_OBJECTS:cuda_orders_${form}>)
  set_target_properties(orders_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${orders_to} ENABLE_EXPORTS ON)
  target_include_directories(orders_${name} PRIVATE tests)
  target_link_libraries(orders_${name} PRIVATE tutti_include tutti_cmocka tutti_tools)
endforeach()
