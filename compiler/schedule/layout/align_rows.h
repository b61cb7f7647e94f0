// Rows of the matrices that products read begin at multiples of 16 bytes.
//
//   b[i, k] f16 of [batch, 1003]: strides 1003, 1   ->   1008, 1
//
// Copy engines and vector loads take rows from such addresses alone; of other matrices tiles are gathered element by
// element, at a fraction of the speed. Scratch gets other strides, which changes no index; weights get a copy, made by a
// nest of Program::prepack; what the caller gives in 16 bits is copied in the run where each element is read so often
// that the copy costs less than it saves.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void align_rows(loop::Program& program);

}  // namespace stridec::schedule
