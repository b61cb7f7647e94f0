// A reader for the artifact's own manifest: finds values in JSON text without copying or allocating.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace stridec::runtime {

// A value: the text from its first character to the end of the document. An invalid one has no text.
struct Json {
  const char* at = nullptr;
  const char* end = nullptr;
  explicit operator bool() const { return at != end; }
};

Json json_document(const char* text, size_t bytes);
Json json_member(Json object, const char* key);  // invalid: it is missing, or `object` is not an object
Json json_first(Json array);                     // invalid: no elements, or no array
Json json_next(Json element);                    // the next element of its array
int64_t json_integer(Json value, int64_t otherwise);

// A string's characters between the quotes, escaped as in the text.
struct JsonString {
  const char* data;
  size_t size;
};
JsonString json_string(Json value);
bool json_equals(Json string, const char* text);  // for text without characters that are escaped

}  // namespace stridec::runtime
