// A folder for the files of one test; it goes with all that is in it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace stridec::testing {

struct Folder {
  std::filesystem::path path;

  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / ("stridec-test-" + std::string(6, 'X'))).string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no folder like " + name + " can be made");
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(const std::string& name) const { return (path / name).string(); }
  std::string write(const std::string& name, const std::string& contents) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << contents;
    return file(name);
  }
  size_t count() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }
};

}  // namespace stridec::testing
