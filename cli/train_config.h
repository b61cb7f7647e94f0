// The settings of a training in a JSON file, whose form is schemas/train.schema.json.
#pragma once

#include <string>

namespace stridec::cli {

// The file's settings in the form of --train. Throws an Error if the file is unreadable or malformed,
// and a usage Error for an unknown key or a value of the wrong kind.
std::string read_train_config(const std::string& path);

}  // namespace stridec::cli
