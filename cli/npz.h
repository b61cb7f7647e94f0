// Reads and writes NumPy's .npz files: zip archives (APPNOTE 6.3.10) of .npy files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/npy.h"

namespace stridec::cli {

// The names of the arrays, without ".npy". Throws Error (kUnreadable, kMalformed).
std::vector<std::string> npz_names(const std::string& path);

// One array, stored or deflated. Throws like read_npy, and kUsage where the archive has no such array.
Array read_npz(const std::string& path, const std::string& name, DType expected);

// A .npy file, or an array of an archive: "all.npz:x".
Array read_array(const std::string& path, DType expected);

// The file of what read_array takes: "all.npz" of "all.npz:x".
std::string file_of(const std::string& given);

// Stored without compression, as numpy.savez does. Throws Error kUnsupported above 4 GB.
void write_npz(const std::string& path, const std::vector<std::pair<std::string, Array>>& arrays);

}  // namespace stridec::cli
