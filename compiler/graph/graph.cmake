# schemas/graph.proto -> graph.pb.{h,cc}; only compiler/graph/serialize.cpp includes the header.
find_library(STRIDEC_PROTOBUF libprotobuf.a)
find_program(STRIDEC_PROTOC protoc)
if(NOT STRIDEC_PROTOBUF OR NOT STRIDEC_PROTOC)
  message(FATAL_ERROR "protobuf is missing: apt-get install libprotobuf-dev protobuf-compiler (or run .ci/setup)")
endif()
set(graph_proto ${PROJECT_BINARY_DIR}/schemas)
file(MAKE_DIRECTORY ${graph_proto})
add_custom_command(
  OUTPUT ${graph_proto}/graph.pb.cc ${graph_proto}/graph.pb.h
  COMMAND ${STRIDEC_PROTOC} --proto_path=${PROJECT_SOURCE_DIR}/schemas --cpp_out=${graph_proto} graph.proto
  DEPENDS ${PROJECT_SOURCE_DIR}/schemas/graph.proto
  VERBATIM)
target_sources(stridec_graph PRIVATE ${graph_proto}/graph.pb.cc ${graph_proto}/graph.pb.h)
set_source_files_properties(${graph_proto}/graph.pb.cc PROPERTIES COMPILE_OPTIONS -w)
target_include_directories(stridec_graph SYSTEM PRIVATE ${PROJECT_BINARY_DIR} ${graph_proto})
target_link_libraries(stridec_graph PRIVATE ${STRIDEC_PROTOBUF} Threads::Threads)
