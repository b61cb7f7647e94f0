# The revision of the source tree, for `stridec --version`. Run by each build (cmake -P) with FROM, the project's root, and TO,
# the file to write, which changes only with the revision; included by the project it sets that up.
if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND git -C ${FROM} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(revision unknown)  # no git, or a tree that is not a checkout
  endif()
  file(CONFIGURE OUTPUT ${TO} @ONLY CONTENT "extern \"C\" const char* const stridec_revision;
const char* const stridec_revision = \"${revision}\";
")
else()
  set(revision ${PROJECT_BINARY_DIR}/generated/revision.cpp)
  add_custom_target(stridec_revision BYPRODUCTS ${revision} VERBATIM
    COMMAND ${CMAKE_COMMAND} -D FROM=${PROJECT_SOURCE_DIR} -D TO=${revision} -P ${CMAKE_CURRENT_LIST_FILE})
  target_sources(stridec PRIVATE ${revision})
  set_source_files_properties(cli/version.cpp PROPERTIES COMPILE_DEFINITIONS
    "STRIDEC_LLVM_VERSION=\"${LLVM_PACKAGE_VERSION}\";STRIDEC_ONNX_VERSION=\"${STRIDEC_ONNX_VERSION}\"")
endif()
