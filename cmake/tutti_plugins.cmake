# plugins/tuner-csv/ becomes lib/libnccl-tuner-csv.so: plugins that come with the library. They use installed headers alone, and
# base/trust.c, which needs libc alone, compiled in.
file(GLOB tuner_csv_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/plugins/tuner-csv/*.c)
add_library(tuner_csv MODULE ${tuner_csv_sources} ${PROJECT_SOURCE_DIR}/src/base/trust.c)
set_target_properties(tuner_csv PROPERTIES OUTPUT_NAME nccl-tuner-csv PREFIX lib LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
target_include_directories(tuner_csv PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
install(TARGETS tuner_csv LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
