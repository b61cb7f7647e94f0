# Links clang, LLVM and LLD as static archives, for clang.cpp, jit.cpp and link.cpp.
#
# The exported clang and lld targets pull in LLVM's shared library, and those of LLVM the shared z3 and zstd; so the
# archives are linked by path, in one group. llvm.cpp has stubs for the targets and plugins that are omitted.
find_package(LLVM 19.1 CONFIG QUIET PATHS ${STRIDEC_LLVM_DIR} NO_DEFAULT_PATH)
foreach(archive libLLVMSupport libclangCodeGen liblldELF)
  if(NOT LLVM_FOUND OR NOT EXISTS ${STRIDEC_LLVM_DIR}/lib/${archive}.a)
    message(FATAL_ERROR "LLVM 19 with static clang and lld is not in ${STRIDEC_LLVM_DIR}: "
      "apt-get install llvm-19-dev libclang-19-dev liblld-19-dev clang-19 lld-19 (or run .ci/setup)")
  endif()
endforeach()
find_library(STRIDEC_ZSTD libzstd.a)
find_library(STRIDEC_ZLIB libz.a)
if(NOT STRIDEC_ZSTD OR NOT STRIDEC_ZLIB)
  message(FATAL_ERROR "zstd or zlib is missing: apt-get install libzstd-dev zlib1g-dev (or run .ci/setup)")
endif()

llvm_map_components_to_libnames(llvm_todo passes orcjit lto option mcparser bitwriter bitreader linker irreader objcopy
  coverage frontendopenmp frontenddriver frontendhlsl frontendoffloading textapi debuginfodwarf symbolize targetparser
  windowsdriver x86codegen x86desc x86info x86asmparser)
set(llvm_libraries "")
while(llvm_todo)
  list(POP_FRONT llvm_todo library)
  if(library IN_LIST llvm_libraries OR NOT EXISTS ${STRIDEC_LLVM_DIR}/lib/lib${library}.a)
    continue()
  endif()
  list(APPEND llvm_libraries ${library})
  get_target_property(needs ${library} INTERFACE_LINK_LIBRARIES)
  foreach(need ${needs})
    if(need MATCHES "^LLVM" AND NOT need MATCHES "Polly|LLVMExtensions|WindowsManifest")
      list(APPEND llvm_todo ${need})
    endif()
  endforeach()
endwhile()
set(clang_libraries clangFrontend clangCodeGen clangParse clangSema clangSerialization clangAnalysis clangAST
  clangASTMatchers clangEdit clangLex clangAPINotes clangSupport clangDriver clangBasic)
list(TRANSFORM llvm_libraries REPLACE "(.+)" "${STRIDEC_LLVM_DIR}/lib/lib\\1.a")
list(TRANSFORM clang_libraries REPLACE "(.+)" "${STRIDEC_LLVM_DIR}/lib/lib\\1.a")

target_include_directories(stridec_codegen SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
target_link_libraries(stridec_codegen PRIVATE -Wl,--start-group
  ${STRIDEC_LLVM_DIR}/lib/liblldELF.a ${STRIDEC_LLVM_DIR}/lib/liblldCommon.a ${clang_libraries} ${llvm_libraries}
  -Wl,--end-group ${STRIDEC_ZSTD} ${STRIDEC_ZLIB} ${CMAKE_DL_LIBS} m)

# The key of cached objects includes the LLVM version and clang.cpp, which sets the compiler's options.
set(compiler ${PROJECT_SOURCE_DIR}/compiler/codegen/cpu/clang.cpp)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${compiler})
file(SHA256 ${compiler} digest)
set_source_files_properties(${compiler} PROPERTIES
  COMPILE_DEFINITIONS STRIDEC_COMPILER="LLVM ${LLVM_PACKAGE_VERSION} ${digest}")

# Artifacts are linked against a stub of libc.so.6 with the symbols and versions of libc.map and no code, so that an
# artifact can use only those symbols, independent of the build machine's libc.
set(stub ${PROJECT_BINARY_DIR}/generated/libc_stub)
set(map ${PROJECT_SOURCE_DIR}/compiler/codegen/cpu/libc.map)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${map})
file(STRINGS ${map} lines REGEX "^  [a-z_].*;$")
set(stub_source "")
foreach(line ${lines})
  string(REGEX MATCHALL "[a-z_][a-z0-9_]*" names "${line}")
  foreach(name ${names})
    string(APPEND stub_source ".globl ${name}\n.type ${name},@function\n${name}: ret\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${stub}.s CONTENT "${stub_source}.section .note.GNU-stack,\"\",@progbits\n" @ONLY)
add_custom_command(OUTPUT ${stub}.so DEPENDS ${stub}.s ${map} VERBATIM
  COMMAND ${STRIDEC_LLVM_DIR}/bin/clang -c ${stub}.s -o ${stub}.o
  COMMAND ${STRIDEC_LLVM_DIR}/bin/ld.lld -shared -soname libc.so.6 --version-script=${map} --build-id=none --strip-all
    -o ${stub}.so ${stub}.o)
stridec_embed(stridec_codegen libc_stub ${stub}.so)
stridec_embed(stridec_codegen abi_header ${PROJECT_SOURCE_DIR}/runtime/include/stridec/abi.h)
stridec_embed(stridec_codegen fourier_text ${PROJECT_SOURCE_DIR}/compiler/loop/fourier.h)
stridec_embed(stridec_codegen philox_text ${PROJECT_SOURCE_DIR}/compiler/loop/philox.h)
stridec_embed(stridec_codegen eigen_text ${PROJECT_SOURCE_DIR}/compiler/loop/eigen.h)
stridec_embed(stridec_codegen runtime_header ${PROJECT_SOURCE_DIR}/runtime/include/stridec/runtime.h)
