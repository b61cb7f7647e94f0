# What reading .pt2 files needs: PyTorch's operator schemas in the program.
stridec_embed(stridec_frontend aten_schemas ${PROJECT_SOURCE_DIR}/compiler/frontend/aten/schemas.txt)
