// The files that commands write: their names must not be those of inputs, nor say another format; folders of
// several files.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace stridec::cli {

// Throws a usage Error if the path has the extension of a format other than `fitting`. Unless `only`, no
// extension, and those of no known format, are accepted. `what`: "the page"; `example`: "--save
// run.safetensors".
void check_extension(const std::string& path, const std::string& what,
                     const std::vector<std::string_view>& fitting, const std::string& example,
                     bool only = false);

// The files that belong to an artifact: the library, its manifest, its file of weights, and the models that
// it was compiled from, if they are in its folder.
std::vector<std::string> files_of_artifact(const std::string& artifact, const std::string& manifest);

// The folder NAME.EXTENSION next to the output NAME.so. Throws Error if that is the output itself, or a file.
// `what`: "the trace".
std::string folder_beside(const std::string& output, const std::string& extension, const std::string& what);

// Makes the folder if it does not exist, and removes its files that an earlier command wrote. Throws Error if
// that fails.
void make_folder(const std::string& folder,
                 const std::function<bool(const std::filesystem::path& file)>& is_earlier);

}  // namespace stridec::cli
