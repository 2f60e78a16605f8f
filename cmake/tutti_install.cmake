# Installation, pkg-config and CMake packages. All paths in them are relative: the tree may be moved after installation. Components: library (what programs
# run with), dev (what they are built with), tools, and per MPI what lets the perf programs use it (openmpi, mpich). Each becomes a Debian package.
include(CMakePackageConfigHelpers)

install(TARGETS nccl nccl_static EXPORT NCCLTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT dev
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev FILES_MATCHING PATTERN "*.h")
foreach(program ${TUTTI_PERF_PROGRAMS})
  # Where the library directory is not <prefix>/lib (Debian's lib/<triplet>), the programs must know.
  file(RELATIVE_PATH to_lib /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/${to_lib}")
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  file(WRITE ${PROJECT_BINARY_DIR}/install/man/${program}.1 ".so man1/tutti-perf.1\n")
endforeach()

# nccl.pc: one for the build tree (lib/pkgconfig), one for the installation.
set(PC_PREFIX ../..)
set(PC_INCLUDE include)
configure_file(${PROJECT_SOURCE_DIR}/cmake/nccl.pc.in ${PROJECT_BINARY_DIR}/lib/pkgconfig/nccl.pc @ONLY)
file(RELATIVE_PATH PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(PC_INCLUDE ${CMAKE_INSTALL_INCLUDEDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/nccl.pc.in ${PROJECT_BINARY_DIR}/install/nccl.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/install/nccl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# find_package(NCCL) gives NCCL::nccl and NCCL::nccl_static; find_package(tutti) gives tutti::tutti, the same library.
set(package ${CMAKE_INSTALL_LIBDIR}/cmake)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/install/version.cmake COMPATIBILITY SameMajorVersion)
install(EXPORT NCCLTargets NAMESPACE NCCL:: DESTINATION ${package}/NCCL COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/NCCLConfig.cmake DESTINATION ${package}/NCCL COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/install/version.cmake DESTINATION ${package}/NCCL RENAME NCCLConfigVersion.cmake COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/tuttiConfig.cmake DESTINATION ${package}/tutti COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/install/version.cmake DESTINATION ${package}/tutti RENAME tuttiConfigVersion.cmake COMPONENT dev)
export(EXPORT NCCLTargets NAMESPACE NCCL:: FILE ${PROJECT_BINARY_DIR}/lib/cmake/NCCL/NCCLTargets.cmake)
configure_file(${PROJECT_SOURCE_DIR}/cmake/NCCLConfig.cmake ${PROJECT_BINARY_DIR}/lib/cmake/NCCL/NCCLConfig.cmake COPYONLY)

# Manual pages and completion of the shells: one text for all programs.
install(FILES ${PROJECT_SOURCE_DIR}/docs/man/tutti.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT library)
if(TUTTI_PERF_PROGRAMS)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/tutti-perf.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/install/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
endif()
set(completed tutti-topo tutti-trace tutti-plugin tutti-tune tutti-why ncclras ${TUTTI_PERF_PROGRAMS})
list(JOIN completed " " TUTTI_COMPLETED)
file(READ ${PROJECT_SOURCE_DIR}/cmake/help_words.awk TUTTI_HELP_WORDS)
string(STRIP "${TUTTI_HELP_WORDS}" TUTTI_HELP_WORDS)
configure_file(${PROJECT_SOURCE_DIR}/cmake/completion.bash.in ${PROJECT_BINARY_DIR}/install/completion/tutti @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/completion.zsh.in ${PROJECT_BINARY_DIR}/install/completion/_tutti @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/install/completion/_tutti DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT tools)
set(bash_folder ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_BINARY_DIR}/install/completion/tutti DESTINATION ${bash_folder} COMPONENT tools)
foreach(program ${completed}) # bash looks for a file of the program's name
  file(CREATE_LINK tutti ${PROJECT_BINARY_DIR}/install/completion/${program} SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/install/completion/${program} DESTINATION ${bash_folder} COMPONENT tools)
endforeach()

# make deb: cpack. The library takes the place of NVIDIA's packages, which have files of the same names.
if(CMAKE_VERSION VERSION_LESS 3.20)
  return() # cpack finds the dependencies between our own packages from 3.20 on; this file is the last one included
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR Tutti)
set(CPACK_PACKAGE_CONTACT "Tutti <tutti@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Collective communication on host memory with NCCL's interface")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
get_cmake_property(CPACK_COMPONENTS_ALL COMPONENTS)
list(REMOVE_ITEM CPACK_COMPONENTS_ALL Unspecified)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
set(exact "(= ${PROJECT_VERSION})")
foreach(row
    "library|tutti|Collective communication on host memory with NCCL's interface||libnccl2"
    "dev|tutti-dev|Headers and static library of Tutti|tutti ${exact}|libnccl-dev"
    "tools|tutti-tools|Perf programs, topology explorer, traces, tuner of Tutti|tutti ${exact}|"
    "openmpi|tutti-openmpi|Tutti's perf programs under Open MPI|tutti-tools ${exact}|"
    "mpich|tutti-mpich|Tutti's perf programs under MPICH|tutti-tools ${exact}|")
  string(REPLACE "|" ";" row "${row}")
  list(GET row 0 component)
  string(TOUPPER ${component} upper)
  list(GET row 1 CPACK_DEBIAN_${upper}_PACKAGE_NAME)
  list(GET row 2 CPACK_COMPONENT_${upper}_DESCRIPTION)
  list(GET row 3 CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS)
  list(GET row 4 CPACK_DEBIAN_${upper}_PACKAGE_CONFLICTS)
  set(CPACK_DEBIAN_${upper}_PACKAGE_REPLACES ${CPACK_DEBIAN_${upper}_PACKAGE_CONFLICTS})
endforeach()
include(CPack)
