// The settings of a training in a JSON file, whose form is schemas/train.schema.json.
#pragma once

#include <string>

namespace stridec::cli {

// The file's settings in the form of --train. Throws Error: unreadable, malformed, and a usage Error for a
// key that no training has or a value of another kind.
std::string read_train_config(const std::string& path);

}  // namespace stridec::cli
