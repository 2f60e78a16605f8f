# plugins/profiler-trace/ becomes lib/libnccl-profiler-trace.so, a plugin that comes with the library; installed headers alone, and base/trust.c, which needs
# libc alone, compiled in. It stays in memory once it is loaded: its thread may be waiting for a disk when the last communicator goes.
file(GLOB trace_plugin_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/plugins/profiler-trace/*.c)
list(FILTER trace_plugin_sources EXCLUDE REGEX "_test\\.c$")
add_library(trace_plugin_objects OBJECT ${trace_plugin_sources})
target_include_directories(trace_plugin_objects PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
add_library(trace_plugin MODULE $<TARGET_OBJECTS:trace_plugin_objects> ${PROJECT_SOURCE_DIR}/src/base/trust.c)
target_include_directories(trace_plugin PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(trace_plugin PRIVATE Threads::Threads ${CMAKE_DL_LIBS} m)
set_target_properties(trace_plugin PROPERTIES OUTPUT_NAME nccl-profiler-trace PREFIX lib LINKER_LANGUAGE C
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
# Its table is its own, whatever the program that loads it exports under the same name (the perf programs do).
target_link_options(trace_plugin PRIVATE -Wl,-z,nodelete -Wl,-Bsymbolic)
install(TARGETS trace_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)

# For the tests beside the code.
add_library(trace_plugin_static STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:trace_plugin_objects>)
target_link_libraries(trace_plugin_static PUBLIC Threads::Threads ${CMAKE_DL_LIBS} m)
set_target_properties(trace_plugin_static PROPERTIES LINKER_LANGUAGE C ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/plugins)

# NCCL_PROFILER_PLUGIN=trace is enough: the library looks for plugins beside itself, in the build tree and where it is installed.
set_target_properties(nccl PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")

# tools/trace/ becomes bin/tutti-trace; it reads files, and needs nothing of the library.
file(GLOB trace_tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/trace/*.c)
list(FILTER trace_tool_sources EXCLUDE REGEX "_test\\.c$")
list(REMOVE_ITEM trace_tool_sources ${PROJECT_SOURCE_DIR}/tools/trace/main.c)
if(TARGET tutti_jansson)
  # The page of `tutti-trace report`.
  foreach(part css html js)
    tutti_embed(trace_tool_sources xt_page_${part} tools/trace/page.${part})
  endforeach()
  add_library(trace_tool STATIC ${trace_tool_sources})
  set_target_properties(trace_tool PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tools)
  target_link_libraries(trace_tool PUBLIC tutti_jansson m)
endif()
if(TARGET tutti_jansson AND NOT TUTTI_FUZZ)
  add_executable(tutti-trace ${PROJECT_SOURCE_DIR}/tools/trace/main.c)
  target_link_libraries(tutti-trace PRIVATE trace_tool)
  install(TARGETS tutti-trace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/tutti-trace.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
endif()
