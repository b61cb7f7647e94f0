# tests/unit/<folder>/*.cpp -> executable test_<folder>. The name up to the first '_' says which library it links
# (test_codegen_cpu: stridec_codegen), with everything below that; any other name links the whole compiler. A folder
# with a main.cpp of its own does without the shared one.
find_path(STRIDEC_DOCTEST_DIR doctest/doctest.h)
if(NOT STRIDEC_DOCTEST_DIR)
  message(FATAL_ERROR "doctest is missing: apt-get install doctest-dev (or run .ci/setup)")
endif()

# Tests run once for each time they are compiled, and most of their time is the compiler's: -O1 takes longer than it saves.
add_library(stridec_test_settings INTERFACE)
target_compile_definitions(stridec_test_settings INTERFACE DOCTEST_CONFIG_SUPER_FAST_ASSERTS
  STRIDEC_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_include_directories(stridec_test_settings INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(stridec_test_settings INTERFACE -O0)
add_library(stridec_test_main OBJECT tests/unit/main.cpp)
target_link_libraries(stridec_test_main PUBLIC stridec_test_settings)
# The headers that tests precompile. CMake writes them for a source that includes them; stridec_test_main has none.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/test_headers.cpp CONTENT "")
add_library(stridec_test_headers OBJECT ${PROJECT_BINARY_DIR}/generated/test_headers.cpp)
target_link_libraries(stridec_test_headers PRIVATE stridec_test_settings)
stridec_precompile(stridec_test_headers <doctest/doctest.h>)
# They define doctest's implementation before its header.
file(GLOB test_mains ${PROJECT_SOURCE_DIR}/tests/unit/main.cpp ${PROJECT_SOURCE_DIR}/tests/unit/*/main.cpp)
set_source_files_properties(${test_mains} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)

# A driver without a GPU: libcuda.so.1.
add_library(fake_cuda SHARED tests/support/fake_cuda.cpp)
set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_include_directories(fake_cuda PRIVATE ${PROJECT_SOURCE_DIR})
# What records the kernels of that driver: libcupti.so.13.
add_library(fake_cupti SHARED tests/support/fake_cupti.cpp)
set_target_properties(fake_cupti PROPERTIES OUTPUT_NAME cupti SOVERSION 13
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_include_directories(fake_cupti PRIVATE ${PROJECT_SOURCE_DIR})
# A tool that takes NVTX ranges.
add_library(fake_nvtx SHARED tests/support/fake_nvtx.cpp)
set_target_properties(fake_nvtx PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

# Programs on the GPU of this machine, for tests that can use one.
add_library(device_program STATIC EXCLUDE_FROM_ALL tests/support/device_program.cpp)
target_link_libraries(device_program PUBLIC stridec_all stridec_runtime)
target_include_directories(device_program PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/runtime/src)

# The same on a CPU, where there is none.
add_library(emulated_gpu STATIC EXCLUDE_FROM_ALL tests/support/emulate.cpp tests/support/emulated_text.cpp
            tests/support/race_check.cpp)
target_link_libraries(emulated_gpu PUBLIC stridec_codegen)

# Contractions compiled and run beside the interpreter.
add_library(contraction_check STATIC EXCLUDE_FROM_ALL tests/support/contraction_harness.cpp
            tests/support/contraction_check.cpp)
target_link_libraries(contraction_check PUBLIC stridec_codegen stridec_test_settings)

file(GLOB test_folders CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/unit/*)
foreach(path ${test_folders})
  file(GLOB sources CONFIGURE_DEPENDS ${path}/*.cpp)
  if(NOT IS_DIRECTORY ${path} OR NOT sources)
    continue()
  endif()
  get_filename_component(folder ${path} NAME)
  string(REGEX REPLACE "_.*" "" library ${folder})
  add_executable(test_${folder} ${sources})
  if(STRIDEC_PCH)
    target_precompile_headers(test_${folder} REUSE_FROM stridec_test_headers)
  endif()
  if(EXISTS ${path}/main.cpp)
    target_link_libraries(test_${folder} PRIVATE stridec_test_settings)
  else()
    target_link_libraries(test_${folder} PRIVATE stridec_test_main)
  endif()
  if(TARGET stridec_${library})
    if(STRIDEC_INSTRUMENT)
      # All of it, and before the ordinary link: a file that no test refers to counts as not reached.
      target_link_libraries(test_${folder} PRIVATE
        -Wl,--whole-archive $<TARGET_FILE:stridec_${library}> -Wl,--no-whole-archive)
    endif()
    target_link_libraries(test_${folder} PRIVATE stridec_${library})
  else()
    target_link_libraries(test_${folder} PRIVATE stridec_all)
    if(TARGET stridec_compile)
      target_link_libraries(test_${folder} PRIVATE stridec_compile)
    endif()
  endif()
  if(folder STREQUAL codegen_cuda)
    target_link_libraries(test_${folder} PRIVATE emulated_gpu)
  endif()
  if(folder MATCHES "^codegen_(products|convolutions)$")
    target_link_libraries(test_${folder} PRIVATE contraction_check)
  endif()
  if(folder STREQUAL compiled_cuda)  # runs its kernels emulated, or on a GPU
    target_link_libraries(test_${folder} PRIVATE emulated_gpu device_program)
  endif()
  if(folder MATCHES "^(compiled_gpu|tune_gpu)$")  # dlopen finds the driver in the process, by this name
    target_link_libraries(test_${folder} PRIVATE fake_cuda)
  endif()
  if(folder STREQUAL compiled_gpu)
    target_link_libraries(test_${folder} PRIVATE emulated_gpu)
  endif()
  if(folder STREQUAL runtime)
    add_dependencies(test_${folder} fake_nvtx)
    target_compile_definitions(test_${folder} PRIVATE STRIDEC_FAKE_NVTX="$<TARGET_FILE:fake_nvtx>")
  endif()
  list(APPEND test_targets test_${folder})
endforeach()
add_custom_target(unit_tests DEPENDS ${test_targets})

# ctest: a test for each unit executable and each suite of tests/suites.txt but `unit`, which is the former all together.
# ctest does not build: a suite wants the program, and the Python environment of .ci/setup.
set(test_environment "build=${PROJECT_BINARY_DIR};stridec=${PROJECT_BINARY_DIR}/stridec;python=${stridec_cache}/python/bin/python")
foreach(test ${test_targets})
  add_test(NAME ${test} COMMAND ${test} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${test} PROPERTIES LABELS unit)
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/suites.txt)
file(STRINGS ${PROJECT_SOURCE_DIR}/tests/suites.txt suites REGEX "^[a-z]")
foreach(suite ${suites})
  string(REGEX REPLACE "\\|.*" "" name "${suite}")
  if(NOT name STREQUAL unit)
    add_test(NAME ${name} COMMAND bash tests/suite.sh ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS suite TIMEOUT 7200 ENVIRONMENT "${test_environment}")
  endif()
endforeach()

# An include that breaks the table of layers fails the build.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_custom_target(check_layers ALL COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/check_layers.py
  VERBATIM COMMENT "checking includes against the layers")
add_dependencies(stridec check_layers)

# Benchmarks are built on request: ninja bench_contraction
add_executable(bench_contraction EXCLUDE_FROM_ALL tests/bench/contraction.cpp tests/support/contraction_harness.cpp)
target_include_directories(bench_contraction PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(bench_contraction PRIVATE stridec_codegen)

# What tests/gpu/matrix.py runs on a device.
add_executable(gpu_matrix_jobs EXCLUDE_FROM_ALL tests/gpu/matrix_jobs.cpp tests/gpu/job_writer.cpp)
target_include_directories(gpu_matrix_jobs PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(gpu_matrix_jobs PRIVATE stridec_codegen)

# What tests/gpu/host.py has measured.
add_executable(gpu_host_cost EXCLUDE_FROM_ALL tests/gpu/host_cost.cpp)
target_include_directories(gpu_host_cost PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/runtime/include)
target_link_libraries(gpu_host_cost PRIVATE dl)

# What tests/replay.py compares: the texts that the compiler writes for a model.
add_executable(replay tests/replay/replay.cpp)
target_include_directories(replay PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(replay PRIVATE stridec_compile stridec_all)

# The public ONNX backend suite: tests/conformance/run.sh.
file(GLOB conformance_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/conformance/*.cpp)
add_executable(onnx_backend ${conformance_sources})
target_link_libraries(onnx_backend PRIVATE emulated_gpu stridec_compile stridec_all device_program)
add_executable(bench_launch EXCLUDE_FROM_ALL tests/bench/launch.cpp)
target_include_directories(bench_launch PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(bench_launch PRIVATE stridec_runtime)
add_library(bench_peak SHARED EXCLUDE_FROM_ALL tests/bench/peak.cpp)
