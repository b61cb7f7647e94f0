# link_for_old_glibc(target): an executable that runs on every glibc since 2.28, whatever the building machine has. It is
# linked against a stand-in for glibc 2.28 (symbols and versions, no code: glibc.map), and compat.c has what 2.28 lacks.
#
# A function that neither has ends the link with "undefined symbol". If glibc 2.28 has it, it belongs in glibc.map, in a
# line of its library and version (`nm -D` of an old libc prints them); otherwise in compat.c.
#
# Builds with sanitizers are linked as usual: sanitizers replace much of libc and need more of it.
set(old_glibc ${CMAKE_CURRENT_LIST_DIR})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${old_glibc}/glibc.map ${old_glibc}/make_stub.cmake)

function(link_for_old_glibc target)
  if(STRIDEC_INSTRUMENT OR STRIDEC_FUZZ OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    return()
  endif()
  set(stub ${PROJECT_BINARY_DIR}/generated/old_glibc)
  execute_process(COMMAND ${CMAKE_COMMAND} -D OUT=${stub} -D CLANG=${STRIDEC_LLVM_DIR}/bin/clang
    -P ${old_glibc}/make_stub.cmake COMMAND_ERROR_IS_FATAL ANY)
  # An object of its own: the target's precompiled headers are C++.
  add_library(stridec_old_glibc OBJECT ${old_glibc}/compat.c)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:stridec_old_glibc>)
  target_link_options(${target} PRIVATE -L${stub})
  target_link_libraries(${target} PRIVATE pthread dl m)
endfunction()
