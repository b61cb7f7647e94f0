// The list of schemas (schema.h), for those that look through all of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stridec::aten {

struct Schema;

// With their namespaces, sorted. They live as long as the program.
std::vector<std::pair<std::string, const Schema*>> all_schemas();

}  // namespace stridec::aten
