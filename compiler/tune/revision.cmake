# Computes the revisions of CPU and GPU kernel generation: digests of the sources of templates and code
# generation. Measurements with another revision are not comparable. The build runs it (cmake -P) with FROM,
# the project's root, and TO, the file to write. The project also includes it, to set that up.
if(CMAKE_SCRIPT_MODE_FILE)
  foreach(kind cpu cuda)
    file(GLOB shared ${FROM}/compiler/kernels/* ${FROM}/compiler/codegen/*.*)
    file(GLOB_RECURSE files ${FROM}/compiler/codegen/${kind}/*)
    list(APPEND files ${shared})
    list(SORT files)
    set(digests)
    foreach(file ${files})
      file(SHA256 ${file} digest)
      string(APPEND digests ${digest})
    endforeach()
    string(SHA256 revision "${digests}")
    string(SUBSTRING ${revision} 0 8 ${kind}_revision)
  endforeach()
  file(CONFIGURE OUTPUT ${TO} @ONLY CONTENT "#include \"compiler/tune/database.h\"
const char* const stridec::tune::kCodegenRevision = \"${cpu_revision}\";
const char* const stridec::tune::kGpuRevision = \"${cuda_revision}\";
")
else()
  file(GLOB shared CONFIGURE_DEPENDS compiler/kernels/* compiler/codegen/*.*)
  file(GLOB_RECURSE made_by CONFIGURE_DEPENDS compiler/codegen/cpu/* compiler/codegen/cuda/*)
  set(revision ${PROJECT_BINARY_DIR}/generated/codegen_revision.cpp)
  add_custom_command(
    OUTPUT ${revision}
    COMMAND ${CMAKE_COMMAND} -D FROM=${PROJECT_SOURCE_DIR} -D TO=${revision} -P ${CMAKE_CURRENT_LIST_FILE}
    DEPENDS ${shared} ${made_by} ${CMAKE_CURRENT_LIST_FILE}
    VERBATIM)
  target_sources(stridec_tune PRIVATE ${revision})
endif()
