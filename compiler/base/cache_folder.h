// The folder where stridec keeps what it can make again: compiled kernels, this user's tuning database.
#pragma once

#include <string>

namespace stridec {

// $STRIDEC_CACHE, else $XDG_CACHE_HOME/stridec (if that is an absolute path, as the XDG base directory
// specification asks), else ~/.cache/stridec; "" without a home directory.
std::string cache_folder();

}  // namespace stridec
