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
  # The program writes its manual pages and shell completion itself.
  install(CODE "
    set(program \"$<TARGET_FILE:stridec>\")
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    set(man \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\")
    file(MAKE_DIRECTORY \${man} \${share}/bash-completion/completions \${share}/zsh/site-functions
      \${share}/fish/vendor_completions.d)
    execute_process(COMMAND \${program} man --folder \${man} COMMAND_ERROR_IS_FATAL ANY)
    foreach(shell bash:bash-completion/completions/stridec zsh:zsh/site-functions/_stridec
        fish:fish/vendor_completions.d/stridec.fish)
      string(REPLACE \":\" \";\" shell \${shell})
      list(GET shell 0 name)
      list(GET shell 1 file)
      execute_process(COMMAND \${program} completion \${name} OUTPUT_FILE \${share}/\${file}
        COMMAND_ERROR_IS_FATAL ANY)
    endforeach()" COMPONENT program)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/runtime/include/stridec/runtime.h
              ${PROJECT_SOURCE_DIR}/runtime/include/stridec/plugin.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stridec COMPONENT runtime)
install(FILES ${generated}/stridec.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)
install(FILES ${generated}/stridec-config.cmake ${generated}/stridec-config-version.cmake
  DESTINATION ${package_dir} COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
