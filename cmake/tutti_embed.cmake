# tutti_embed(LIST NAME FILE): adds to LIST a source with the bytes of FILE (in the source tree, or with its whole path) as the C text `const char NAME[]`. Pages are so kept in files of their own.
function(tutti_embed list name file)
  set(out ${PROJECT_BINARY_DIR}/tools/${name}.c)
  get_filename_component(in ${file} ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
  add_custom_command(OUTPUT ${out} COMMAND ${CMAKE_COMMAND} -DNAME=${name} -DOUT=${out} -DIN=${in} -P ${script}
    DEPENDS ${in} ${script} VERBATIM)
  set(${list} ${${list}} ${out} PARENT_SCOPE)
endfunction()
