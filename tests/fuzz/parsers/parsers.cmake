# STRIDEC_FUZZ: a libFuzzer target a parser, fuzz_<name> from <name>.cpp; tests/fuzz/run.sh runs them.
add_custom_target(fuzz_parsers)
foreach(name onnx graph_file graph_text loop_text expression npy tuning image)
  add_executable(fuzz_${name} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/${name}.cpp)
  target_include_directories(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(fuzz_${name} PRIVATE stridec_frontend stridec_ops stridec_graph stridec_loop stridec_sym stridec_base)
  add_dependencies(fuzz_parsers fuzz_${name})
endforeach()
target_sources(fuzz_npy PRIVATE ${PROJECT_SOURCE_DIR}/cli/npy.cpp)
# The file format alone: the tuner itself needs LLVM.
target_sources(fuzz_tuning PRIVATE ${PROJECT_SOURCE_DIR}/compiler/tune/database.cpp)
