#include "compiler/base/diagnostic.h"
#include "compiler/sym/facts_state.h"
#include "compiler/sym/rebuild.h"

namespace stridec::sym {
Expr simplify(Expr e, const Facts&) { return e; }
Expr simplify(Expr e) { return e; }
}  // namespace stridec::sym
