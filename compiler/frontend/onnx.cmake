# stridec_onnx_deps: the ONNX C++ library that .ci/setup builds into the cache, and the system's static protobuf. Only
# compiler/frontend/onnx and what reads or writes tensors in ONNX's format includes its headers.
set(STRIDEC_ONNX_VERSION 1.23.2)
if(DEFINED ENV{STRIDEC_CACHE})
  set(stridec_cache $ENV{STRIDEC_CACHE})
else()
  set(stridec_cache $ENV{HOME}/.cache/stridec)
endif()
set(STRIDEC_ONNX_PREFIX ${stridec_cache}/onnx-${STRIDEC_ONNX_VERSION} CACHE PATH "ONNX ${STRIDEC_ONNX_VERSION}, static")
if(NOT EXISTS ${STRIDEC_ONNX_PREFIX}/lib/libonnx.a)
  message(FATAL_ERROR "ONNX ${STRIDEC_ONNX_VERSION} is not in ${STRIDEC_ONNX_PREFIX}: run .ci/setup, or set STRIDEC_ONNX_PREFIX")
endif()
find_library(STRIDEC_PROTOBUF libprotobuf.a)
find_program(STRIDEC_PROTOC protoc)
if(NOT STRIDEC_PROTOBUF OR NOT STRIDEC_PROTOC)
  message(FATAL_ERROR "protobuf is missing: apt-get install libprotobuf-dev protobuf-compiler (or run .ci/setup)")
endif()

add_library(stridec_onnx_deps INTERFACE)
target_include_directories(stridec_onnx_deps SYSTEM INTERFACE ${STRIDEC_ONNX_PREFIX}/include)
target_compile_definitions(stridec_onnx_deps INTERFACE ONNX_NAMESPACE=onnx ONNX_ML=1)
# onnx registers its operator schemas by calls from onnx's own code, so ordinary archive linking keeps them.
target_link_libraries(stridec_onnx_deps INTERFACE ${STRIDEC_ONNX_PREFIX}/lib/libonnx.a
  ${STRIDEC_ONNX_PREFIX}/lib/libonnx_proto.a ${STRIDEC_PROTOBUF} Threads::Threads)

if(TARGET stridec_frontend)
  target_link_libraries(stridec_frontend PUBLIC stridec_onnx_deps)
endif()
