// Parses TorchScript's serialised sources: the part of Python that its printer writes.
#pragma once

#include <string>
#include <string_view>

#include "compiler/frontend/torchscript/syntax.h"

namespace stridec::torchscript {

// Throws Error kMalformed for text that is not such source.
Source parse_source(std::string_view text, const std::string& module);

}  // namespace stridec::torchscript
