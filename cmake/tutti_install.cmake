# Installation, pkg-config and CMake packages. All paths in them are relative: the tree may be moved after installation.
include(CMakePackageConfigHelpers)

install(TARGETS nccl nccl_static EXPORT NCCLTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
foreach(program ${TUTTI_PERF_PROGRAMS})
  # Where the library directory is not <prefix>/lib (Debian's lib/<triplet>), the programs must know.
  file(RELATIVE_PATH to_lib /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/${to_lib}")
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()

# nccl.pc: one for the build tree (lib/pkgconfig), one for the installation.
set(PC_PREFIX ../..)
set(PC_INCLUDE include)
configure_file(${PROJECT_SOURCE_DIR}/cmake/nccl.pc.in ${PROJECT_BINARY_DIR}/lib/pkgconfig/nccl.pc @ONLY)
file(RELATIVE_PATH PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(PC_INCLUDE ${CMAKE_INSTALL_INCLUDEDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/nccl.pc.in ${PROJECT_BINARY_DIR}/install/nccl.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/install/nccl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# find_package(NCCL) gives NCCL::nccl and NCCL::nccl_static; find_package(tutti) gives tutti::tutti, the same library.
set(package ${CMAKE_INSTALL_LIBDIR}/cmake)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/install/version.cmake COMPATIBILITY SameMajorVersion)
install(EXPORT NCCLTargets NAMESPACE NCCL:: DESTINATION ${package}/NCCL)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/NCCLConfig.cmake DESTINATION ${package}/NCCL)
install(FILES ${PROJECT_BINARY_DIR}/install/version.cmake DESTINATION ${package}/NCCL RENAME NCCLConfigVersion.cmake)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/tuttiConfig.cmake DESTINATION ${package}/tutti)
install(FILES ${PROJECT_BINARY_DIR}/install/version.cmake DESTINATION ${package}/tutti RENAME tuttiConfigVersion.cmake)
export(EXPORT NCCLTargets NAMESPACE NCCL:: FILE ${PROJECT_BINARY_DIR}/lib/cmake/NCCL/NCCLTargets.cmake)
configure_file(${PROJECT_SOURCE_DIR}/cmake/NCCLConfig.cmake ${PROJECT_BINARY_DIR}/lib/cmake/NCCL/NCCLConfig.cmake COPYONLY)
