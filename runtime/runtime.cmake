# The runtime is built twice from the same sources: as a library that the unit tests link, and as one relocatable
# object, STRIDEC_RUNTIME_OBJECT (target stridec_runtime_object), which goes into every artifact.
# Neither exceptions nor RTTI nor libstdc++: what stays undefined is libc's.
file(GLOB runtime_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/src/*.cpp)
# Code that runs once per model or context, or only when a trace is made: its size counts, since every artifact has it.
foreach(source api context_api cpu_features device_copy json machine model nvtx parameters step_nodes ticks trace_file trace_text warm_up weights)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/runtime/src/${source}.cpp PROPERTIES COMPILE_OPTIONS -Os)
endforeach()
set(runtime_flags -fno-exceptions -fno-rtti -fno-threadsafe-statics -fvisibility=hidden -fPIC -U_FORTIFY_SOURCE)

add_library(stridec_runtime STATIC ${runtime_sources})
target_compile_options(stridec_runtime PRIVATE ${runtime_flags})
target_include_directories(stridec_runtime PUBLIC ${PROJECT_SOURCE_DIR}/runtime/include ${PROJECT_SOURCE_DIR})
target_link_libraries(stridec_runtime PUBLIC Threads::Threads)

# What goes into artifacts is as users get it, whatever this build is for.
set(uninstrumented -g0 -fno-sanitize=all)
if(STRIDEC_INSTRUMENT)
  list(APPEND uninstrumented -fno-profile-instr-generate -fno-coverage-mapping)
endif()

# The tuner opens GPUs as artifacts do.
if(TARGET stridec_tune)
  target_link_libraries(stridec_tune PRIVATE stridec_runtime)
endif()

# -march: the oldest machine, which must get as far as the sentence that says what it lacks.
add_library(stridec_runtime_parts OBJECT ${runtime_sources})
target_compile_options(stridec_runtime_parts PRIVATE ${runtime_flags} -O2 -DNDEBUG -march=x86-64 -mtune=generic
                       -fno-stack-protector ${uninstrumented})
target_include_directories(stridec_runtime_parts PRIVATE ${PROJECT_SOURCE_DIR}/runtime/include)

set(STRIDEC_RUNTIME_OBJECT ${PROJECT_BINARY_DIR}/runtime/stridec_runtime.o)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/runtime)
add_custom_command(OUTPUT ${STRIDEC_RUNTIME_OBJECT}
  COMMAND ${STRIDEC_LLVM_DIR}/bin/ld.lld -r -o ${STRIDEC_RUNTIME_OBJECT} $<TARGET_OBJECTS:stridec_runtime_parts>
  DEPENDS stridec_runtime_parts $<TARGET_OBJECTS:stridec_runtime_parts>
  COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(stridec_runtime_object DEPENDS ${STRIDEC_RUNTIME_OBJECT})
if(TARGET stridec_codegen)
  stridec_embed(stridec_codegen runtime_object ${STRIDEC_RUNTIME_OBJECT})
endif()

# An artifact as the packager makes it, but of a program written by hand: linked against the stand-in for libc
# (compiler/codegen/cpu/libc.map), so the runtime needing a symbol that is not there fails here.
if(NOT DEFINED STRIDEC_TESTS OR STRIDEC_TESTS)
  set(test_artifact ${PROJECT_BINARY_DIR}/runtime/test_artifact.so)
  add_library(stridec_test_program OBJECT ${PROJECT_SOURCE_DIR}/tests/unit/runtime/fake_programs.cpp)
  target_compile_options(stridec_test_program PRIVATE ${runtime_flags} ${uninstrumented})
  target_include_directories(stridec_test_program PRIVATE ${PROJECT_SOURCE_DIR}/runtime/include ${PROJECT_SOURCE_DIR})
  set(libc_stub ${PROJECT_BINARY_DIR}/generated/libc_stub.so)
  add_custom_command(OUTPUT ${test_artifact}
    COMMAND ${STRIDEC_LLVM_DIR}/bin/ld.lld -shared -z defs -z now --gc-sections --hash-style=gnu -soname test_artifact.so
      -o ${test_artifact} $<TARGET_OBJECTS:stridec_test_program> ${STRIDEC_RUNTIME_OBJECT} ${libc_stub}
    DEPENDS stridec_test_program $<TARGET_OBJECTS:stridec_test_program> ${STRIDEC_RUNTIME_OBJECT} ${libc_stub}
    COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(stridec_test_artifact DEPENDS ${test_artifact})
  add_dependencies(stridec_runtime stridec_test_artifact)
  target_compile_definitions(stridec_runtime INTERFACE STRIDEC_TEST_ARTIFACT="${test_artifact}")
  target_link_libraries(stridec_runtime INTERFACE ${CMAKE_DL_LIBS})

  # The samples as a stranger builds them: the public header is C99 and C++17.
  foreach(sample embed functions)
    add_executable(sample_${sample} ${PROJECT_SOURCE_DIR}/samples/c/${sample}.c)
    set_target_properties(sample_${sample} PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
    target_compile_options(sample_${sample} PRIVATE -pedantic)
    target_link_libraries(sample_${sample} PRIVATE ${CMAKE_DL_LIBS} m)
  endforeach()
  add_executable(sample_serve ${PROJECT_SOURCE_DIR}/samples/cpp/serve.cpp)
  set_target_properties(sample_serve PROPERTIES CXX_STANDARD 17)
  target_link_libraries(sample_serve PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
  foreach(sample sample_embed sample_functions sample_serve)
    target_include_directories(${sample} PRIVATE ${PROJECT_SOURCE_DIR}/runtime/include)
    add_dependencies(stridec_runtime ${sample})
  endforeach()
  target_compile_definitions(stridec_runtime INTERFACE STRIDEC_BUILD_DIR="${PROJECT_BINARY_DIR}")
endif()
