// How kernels of users are compiled and run, for operators.
#pragma once

#include "compiler/extend/user_operator.h"

namespace stridec {

extend::KernelHost kernel_host();

}  // namespace stridec
