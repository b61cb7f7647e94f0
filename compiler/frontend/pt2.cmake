# What reading .pt2 files needs: zlib for deflated members, and PyTorch's operator schemas in the program.
find_library(STRIDEC_ZLIB libz.a)
if(NOT STRIDEC_ZLIB)
  message(FATAL_ERROR "zlib is missing: apt-get install zlib1g-dev (or run .ci/setup)")
endif()
target_link_libraries(stridec_frontend PUBLIC ${STRIDEC_ZLIB})
stridec_embed(stridec_frontend aten_schemas ${PROJECT_SOURCE_DIR}/compiler/frontend/aten/schemas.txt)
