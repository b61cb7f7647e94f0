// Runs the kernel of an operator on given inputs, to check it.
#pragma once

#include <vector>

#include "compiler/extend/user_operator.h"
#include "compiler/loop/interpret.h"

namespace stridec::extend {

// The graph is a call at constant sizes, as build_operator() makes it, and `outputs` are its results.
std::vector<loop::HostTensor> try_kernel(const graph::Graph& graph,
                                         const std::vector<graph::ValueId>& outputs,
                                         const std::vector<loop::HostTensor>& inputs,
                                         const KernelTrial& trial, const KernelHost& host);

}  // namespace stridec::extend
