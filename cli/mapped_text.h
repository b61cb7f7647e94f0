// The contents of a file without a copy in memory: artifacts are as large as their weights.
#pragma once

#include <string>
#include <string_view>

namespace stridec::cli {

class MappedText {
 public:
  // Throws Error (kUnreadable) like read_file. What cannot be mapped, such as a pipe, is read.
  explicit MappedText(const std::string& path);
  ~MappedText();
  MappedText(const MappedText&) = delete;

  std::string_view text() const { return text_; }

 private:
  std::string read_;  // if it is not mapped
  std::string_view text_;
  bool mapped_ = false;
};

}  // namespace stridec::cli
