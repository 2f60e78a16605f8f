# tools/topo/ becomes bin/tutti-topo, over the static library, whose hidden functions it uses. All but main.c is a library of its own, for
# tests beside the code. Needs jansson.
file(GLOB topo_tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/topo/*.c)
list(FILTER topo_tool_sources EXCLUDE REGEX "_test\\.c$")
list(REMOVE_ITEM topo_tool_sources ${PROJECT_SOURCE_DIR}/tools/topo/main.c)

if(TARGET tutti_jansson AND NOT TUTTI_FUZZ)
  foreach(part page chart) # of the page that `tutti-topo show --format html` writes
    tutti_embed(topo_tool_sources xp_${part}_style tools/topo/${part}.css)
    tutti_embed(topo_tool_sources xp_${part}_script tools/topo/${part}.js)
  endforeach()
  add_library(topo_tool STATIC ${topo_tool_sources})
  set_target_properties(topo_tool PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tools)
  target_link_libraries(topo_tool PUBLIC tutti_tools tutti_jansson)
  add_executable(tutti-topo ${PROJECT_SOURCE_DIR}/tools/topo/main.c)
  target_link_libraries(tutti-topo PRIVATE topo_tool)
  install(TARGETS tutti-topo RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/tutti-topo.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
endif()

# tools/plugin/ becomes bin/tutti-plugin, in the same way; it needs no jansson.
file(GLOB plugin_tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/plugin/*.c)
if(NOT TUTTI_FUZZ)
  add_executable(tutti-plugin ${plugin_tool_sources})
  target_link_libraries(tutti-plugin PRIVATE tutti_tools)
  install(TARGETS tutti-plugin RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/tutti-plugin.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
endif()

# tools/tune/ becomes bin/tutti-tune.
file(GLOB tune_tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/tune/*.c)
if(NOT TUTTI_FUZZ)
  add_executable(tutti-tune ${tune_tool_sources})
  target_link_libraries(tutti-tune PRIVATE tutti_tools)
  install(TARGETS tutti-tune RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/tutti-tune.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
endif()

# tools/why/ becomes bin/tutti-why.
file(GLOB why_tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/why/*.c)
if(NOT TUTTI_FUZZ)
  add_executable(tutti-why ${why_tool_sources})
  target_link_libraries(tutti-why PRIVATE tutti_tools)
  install(TARGETS tutti-why RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/tutti-why.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
endif()

# tools/ras/ becomes bin/ncclras; it is a client of the library's RAS thread, and links nothing.
if(NOT TUTTI_FUZZ)
  add_executable(ncclras ${PROJECT_SOURCE_DIR}/tools/ras/main.c)
  target_link_libraries(ncclras PRIVATE tutti_include)
  install(TARGETS ncclras RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/ncclras.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
endif()
