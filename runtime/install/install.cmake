# `cmake --install`: the program, the header of the C API, and how other builds find both. `--component runtime` leaves out
# the program: what an application needs to load artifacts is one header.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stridec)
set(generated ${PROJECT_BINARY_DIR}/generated)
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/stridec.pc.in ${generated}/stridec.pc @ONLY)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/stridec-config.cmake.in ${generated}/stridec-config.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${generated}/stridec-config-version.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)

if(TARGET stridec)
  install(TARGETS stridec RUNTIME COMPONENT program)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/runtime/include/stridec/runtime.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stridec COMPONENT runtime)
install(FILES ${generated}/stridec.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)
install(FILES ${generated}/stridec-config.cmake ${generated}/stridec-config-version.cmake
  DESTINATION ${package_dir} COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
