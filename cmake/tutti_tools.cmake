# tools/topo/ becomes bin/tutti-topo, over the static library, whose hidden functions it uses.
file(GLOB topo_tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/topo/*.c)
list(FILTER topo_tool_sources EXCLUDE REGEX "_test\\.c$")

if(NOT TUTTI_FUZZ)
  add_executable(tutti-topo ${topo_tool_sources})
  target_link_libraries(tutti-topo PRIVATE tutti_include nccl_static)
  if(TARGET tutti_jansson)
    target_link_libraries(tutti-topo PRIVATE tutti_jansson)
  endif()
  install(TARGETS tutti-topo RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/tutti-topo.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
