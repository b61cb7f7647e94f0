# Builds the image decoder as one relocatable object, STRIDEC_IMAGE_OBJECT (target stridec_image_object). It
# contains the static libraries of the codecs and exports only the two functions of image.h. It is linked
# into artifacts of models that decode images, and into stridec itself for the interpreter.
# compiler/codegen/cpu/libc.map lists what may stay undefined.
find_path(STRIDEC_JPEG_DIR jpeglib.h)
find_path(STRIDEC_WEBP_DIR webp/decode.h)
find_path(STRIDEC_OPENJPEG_DIR openjpeg.h PATH_SUFFIXES openjpeg-2.5 openjpeg-2.4)
find_library(STRIDEC_JPEG_LIBRARY libjpeg.a)
find_library(STRIDEC_WEBP_LIBRARY libwebp.a)
find_library(STRIDEC_OPENJPEG_LIBRARY libopenjp2.a)
find_library(STRIDEC_ZLIB_LIBRARY libz.a)
set(image_formats bmp pnm png tiff)
set(image_libraries ${STRIDEC_ZLIB_LIBRARY})
if(STRIDEC_JPEG_DIR AND STRIDEC_WEBP_DIR AND STRIDEC_OPENJPEG_DIR AND STRIDEC_JPEG_LIBRARY AND STRIDEC_WEBP_LIBRARY
   AND STRIDEC_OPENJPEG_LIBRARY)
  list(APPEND image_formats jpeg webp jpeg2000)
  list(APPEND image_libraries ${STRIDEC_JPEG_LIBRARY} ${STRIDEC_WEBP_LIBRARY} ${STRIDEC_OPENJPEG_LIBRARY})
  set(image_codecs -DSTRIDEC_IMAGE_CODECS)
else()
  message(STATUS "JPEG, WebP and JPEG 2000 are left out: apt-get install libjpeg-dev libwebp-dev libopenjp2-7-dev")
endif()
list(TRANSFORM image_formats PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM image_formats APPEND .cpp)
add_library(stridec_image_parts OBJECT ${CMAKE_CURRENT_LIST_DIR}/image.cpp ${CMAKE_CURRENT_LIST_DIR}/libc.cpp
            ${image_formats})
target_compile_options(stridec_image_parts PRIVATE ${image_codecs} -fno-exceptions -fno-rtti -fno-threadsafe-statics
  -fvisibility=hidden -fPIC -U_FORTIFY_SOURCE -O2 -DNDEBUG -march=x86-64 -mtune=generic -fno-stack-protector ${uninstrumented}
  -fno-builtin -Wno-builtin-requires-header)
target_include_directories(stridec_image_parts PRIVATE ${STRIDEC_JPEG_DIR} ${STRIDEC_WEBP_DIR} ${STRIDEC_OPENJPEG_DIR})
set(STRIDEC_IMAGE_OBJECT ${PROJECT_BINARY_DIR}/runtime/stridec_image.o)
add_custom_command(OUTPUT ${STRIDEC_IMAGE_OBJECT}
  COMMAND ${STRIDEC_LLVM_DIR}/bin/ld.lld -r -o ${STRIDEC_IMAGE_OBJECT}.all
    $<TARGET_OBJECTS:stridec_image_parts> ${image_libraries}
  COMMAND ${STRIDEC_LLVM_DIR}/bin/llvm-objcopy --strip-debug --keep-global-symbol=stridec_image_size
    --keep-global-symbol=stridec_image_decode ${STRIDEC_IMAGE_OBJECT}.all ${STRIDEC_IMAGE_OBJECT}.local
  # Symbols that libc.map lacks fail here, not when a user compiles a model.
  COMMAND ${STRIDEC_LLVM_DIR}/bin/ld.lld -shared -z defs -o ${STRIDEC_IMAGE_OBJECT}.so ${STRIDEC_IMAGE_OBJECT}.local
    ${PROJECT_BINARY_DIR}/generated/libc_stub.so
  COMMAND ${CMAKE_COMMAND} -E rename ${STRIDEC_IMAGE_OBJECT}.local ${STRIDEC_IMAGE_OBJECT}
  DEPENDS stridec_image_parts $<TARGET_OBJECTS:stridec_image_parts> ${PROJECT_BINARY_DIR}/generated/libc_stub.so
  COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(stridec_image_object DEPENDS ${STRIDEC_IMAGE_OBJECT})
if(TARGET stridec_codegen)
  stridec_embed(stridec_codegen image_object ${STRIDEC_IMAGE_OBJECT})
endif()

# As an archive, so that a program that links it twice contains it once.
set(STRIDEC_IMAGE_ARCHIVE ${PROJECT_BINARY_DIR}/runtime/libstridec_image.a)
add_custom_command(OUTPUT ${STRIDEC_IMAGE_ARCHIVE} DEPENDS ${STRIDEC_IMAGE_OBJECT} VERBATIM
  COMMAND ${CMAKE_COMMAND} -E rm -f ${STRIDEC_IMAGE_ARCHIVE}
  COMMAND ${STRIDEC_LLVM_DIR}/bin/llvm-ar rcsD ${STRIDEC_IMAGE_ARCHIVE} ${STRIDEC_IMAGE_OBJECT})
add_custom_target(stridec_image_archive DEPENDS ${STRIDEC_IMAGE_ARCHIVE})
add_library(stridec_image STATIC IMPORTED GLOBAL)
set_target_properties(stridec_image PROPERTIES IMPORTED_LOCATION ${STRIDEC_IMAGE_ARCHIVE})
add_dependencies(stridec_image stridec_image_archive)
target_link_libraries(stridec_loop PUBLIC stridec_image)
